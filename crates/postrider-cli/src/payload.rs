//! Payloads from the command line: given in place, in a file, or on standard input.

use std::io::Read as _;

use crate::failure::{Exit, Failure};

/// More than this is never read, whatever the configured limit; larger payloads are refused by their size.
const MOST_BYTES: u64 = 1 << 30;

/// The bytes that `--data` means: `@FILE`, `-` for standard input, or the text itself.
pub(crate) fn read(data: &str) -> Result<Vec<u8>, Failure> {
    if data == "-" {
        return read_from(std::io::stdin().lock(), "standard input");
    }
    let Some(path) = data.strip_prefix('@') else {
        return Ok(data.as_bytes().to_vec());
    };
    let shown = format!("`{path}`");
    let file = std::fs::File::open(path).map_err(|error| unreadable(&shown, &error))?;
    read_from(file, &shown)
}

fn read_from(source: impl std::io::Read, shown: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|error| unreadable(shown, &error))?;
    Ok(bytes)
}

fn unreadable(shown: &str, error: &std::io::Error) -> Failure {
    let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failed };
    Failure::new(exit, "data_unreadable", format!("cannot read the data from {shown}: {error}"))
        .hint("--data is JSON in place, `@FILE`, or `-` for standard input")
}
