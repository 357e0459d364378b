//! The reference pages are what the rules and the catalogue say.

#[test]
fn the_page_is_up_to_date() {
    let path = format!(
        "{}/../../docs/verdicts.md",
        std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")
    );
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == wellhead_upstream::docs::verdicts_page(),
        "docs/verdicts.md is stale: run `cargo xtask docs`"
    );
}

#[test]
fn the_page_of_providers_is_up_to_date() {
    let path = format!(
        "{}/../../docs/providers.md",
        std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")
    );
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == wellhead_upstream::docs::providers_page(),
        "docs/providers.md is stale: run `cargo xtask docs`"
    );
}
