//! Golden files: what people see, word for word. `POSTRIDER_BLESS=1` rewrites them.

use std::path::Path;

#[track_caller]
pub(crate) fn compare(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("POSTRIDER_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; POSTRIDER_BLESS=1 writes it", path.display()));
    assert!(
        expected == actual,
        "{} differs; POSTRIDER_BLESS=1 rewrites it if the change is meant\n--- expected\n{expected}\n--- actual\n{actual}",
        path.display()
    );
}
