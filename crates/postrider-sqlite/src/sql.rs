//! The statements, one per file in `sql/`.

/// The statement of that file, as SQLite gets it: without the comment that the file opens with. Prepared statements
/// are looked up by their text, several times per delivery, so it is kept short.
macro_rules! sql {
    ($name:literal) => {
        const { $crate::sql::without_opening_comment(include_str!(concat!("../sql/", $name, ".sql"))) }
    };
}
pub(crate) use sql;

pub(crate) const fn without_opening_comment(text: &'static str) -> &'static str {
    let bytes = text.as_bytes();
    let mut start = 0;
    while start + 1 < bytes.len() && bytes[start] == b'-' && bytes[start + 1] == b'-' {
        while start < bytes.len() && bytes[start] != b'\n' {
            start += 1;
        }
        start += 1;
    }
    text.split_at(start).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_opening_comment_goes() {
        assert_eq!(without_opening_comment("-- why\n-- and why\nselect 1 -- one\n"), "select 1 -- one\n");
        assert_eq!(without_opening_comment("select 1"), "select 1");
        assert!(sql!("settle").starts_with("update postrider_deliveries"));
    }
}
