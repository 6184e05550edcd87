//! What the repository's texts promise: nothing unfinished, nothing private, links that lead somewhere.

use postrider_tests::{assert_none, files, markdown, words};

#[test]
fn nothing_is_left_undone_or_ignored() {
    // Assembled from halves, or this list would find itself.
    const FORBIDDEN: &[&str] = &[
        concat!("todo", "!("),
        concat!("todo", "!["),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore]"),
        concat!("#[", "ignore ="),
        concat!("```", "ignore"),
        concat!("```rust,", "ignore"),
        concat!("fix", "me"),
    ];
    assert_none(&words::complaints(&files::text_files(""), FORBIDDEN, &[], &[]));
}

/// The repository speaks of Postrider alone, not of the place or the means by which it is written.
#[test]
fn nothing_refers_to_how_the_repository_is_made() {
    const FORBIDDEN: &[&str] = &[
        concat!("../", "shared"),
        concat!("/work/", "shared"),
        concat!("/work/", "main"),
        concat!("issues", " show"),
        concat!("brief", ".md"),
        concat!("clau", "de"),
        concat!("anthro", "pic"),
        concat!("chat", "gpt"),
        concat!("open", "ai"),
        concat!("co", "pilot"),
        concat!("language", " model"),
        concat!("ai", "-generated"),
        concat!("co-authored", "-by"),
    ];
    assert_none(&words::complaints(&files::text_files(""), FORBIDDEN, &[], &[]));
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = files::root();
    let files = files::text_files("");
    let documents: Vec<_> = files.iter().filter(|file| file.has_extension("md")).collect();
    let complaints = markdown::link_complaints(&documents, |path| root.join(path).exists());
    assert_none(&complaints);
}
