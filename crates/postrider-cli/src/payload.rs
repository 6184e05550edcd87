//! Payloads from the command line: given in place, in a file, or on standard input.

use std::io::Read as _;

use crate::failure::{Exit, Failure};

/// More than this is never read, whatever the configured limit; larger payloads are refused by their size.
const MOST_BYTES: u64 = 1 << 30;

/// The bytes that `--data` means: `@FILE`, `-` for standard input, or the text itself.
pub(crate) fn read(data: &str) -> Result<Vec<u8>, Failure> {
    read_from(data, "data", "--data is JSON in place, `@FILE`, or `-` for standard input")
}

/// A secret that is given in the same way, so that it need not stand where other users can see it.
pub(crate) fn read_secret(text: &str) -> Result<Vec<u8>, Failure> {
    read_from(text, "secret", "--secret is the secret in place, `@FILE`, or `-` for standard input")
}

fn read_from(text: &str, what: &str, hint: &str) -> Result<Vec<u8>, Failure> {
    let unreadable = |shown: &str, error: &std::io::Error| {
        let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failed };
        let message = format!("cannot read the {what} from {shown}: {error}");
        Failure::new(exit, format!("{what}_unreadable"), message).hint(hint)
    };
    let read = |source: &mut dyn std::io::Read, shown: &str| {
        let mut bytes = Vec::new();
        source.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|error| unreadable(shown, &error))?;
        Ok(bytes)
    };
    if text == "-" {
        return read(&mut std::io::stdin().lock(), "standard input");
    }
    let Some(path) = text.strip_prefix('@') else {
        return Ok(text.as_bytes().to_vec());
    };
    let shown = format!("`{path}`");
    let mut file = std::fs::File::open(path).map_err(|error| unreadable(&shown, &error))?;
    read(&mut file, &shown)
}
