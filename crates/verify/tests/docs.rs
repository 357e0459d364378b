//! The reference page is what the tables say.

#[test]
fn the_page_is_up_to_date() {
    let path = format!(
        "{}/../../docs/verify.md",
        std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")
    );
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == wellhead_verify::docs::verify_page(),
        "docs/verify.md is stale: run `cargo xtask docs`"
    );
}
