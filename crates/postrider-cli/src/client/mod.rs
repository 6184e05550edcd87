//! Commands that ask a server, or work on a database as a server would.
