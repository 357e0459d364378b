//! The workspace's crates as their sources show them: files, modules and what each names.
//!
//! Production code alone: files of tests, and what stands under `#[cfg(test)]`, are left out.

use super::outline::Outline;

/// One crate of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    /// The package's name without its prefix.
    pub(super) name: String,
    /// A kit for tests under `tests/`, whose words meet those of no other crate.
    pub(super) is_test_kit: bool,
    pub(super) files: Vec<SourceFile>,
}

/// One file under the crate's `src`.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// From the root of the repository.
    pub(super) path: String,
    /// The names of its module from the crate's root; none for the root itself.
    pub(super) module: Vec<String>,
    pub(super) outline: Outline,
}

impl SourceFile {
    pub(super) fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path)
    }
}

/// Sorts the Rust files (path, outline) into packages: (name, folder from the root).
pub(super) fn packages(
    folders: &[(String, String)],
    files: Vec<(String, Outline)>,
) -> Vec<Package> {
    let short = |name: &str| name.strip_prefix("wellhead-").unwrap_or(name).to_owned();
    let mut packages: Vec<Package> = folders
        .iter()
        .map(|(name, folder)| {
            let is_test_kit = folder.starts_with("tests/");
            Package { name: short(name), is_test_kit, files: Vec::new() }
        })
        .collect();
    for (path, outline) in files {
        let home = folders.iter().zip(&mut packages).find_map(|((_, folder), package)| {
            let inside = path.strip_prefix(folder.as_str())?.strip_prefix("/src/")?;
            Some((package, module(inside)?))
        });
        if let Some((package, module)) = home {
            package.files.push(SourceFile { path, module, outline });
        }
    }
    for package in &mut packages {
        leave_out_tests(&mut package.files);
    }
    packages
}

/// The module that a file under `src` is; none for tests and for further programs.
fn module(path: &str) -> Option<Vec<String>> {
    let stem = path.strip_suffix(".rs")?;
    let mut names: Vec<&str> = stem.split('/').collect();
    if names.iter().any(|name| *name == "tests" || name.ends_with("_tests")) || names[0] == "bin" {
        return None;
    }
    if names.last() == Some(&"mod") || matches!(names.as_slice(), ["lib" | "main"]) {
        names.pop();
    }
    Some(names.into_iter().map(str::to_owned).collect())
}

/// Drops the files of modules that are declared for tests alone, and the `main.rs` beside a library.
fn leave_out_tests(files: &mut Vec<SourceFile>) {
    let mut test_modules = Vec::new();
    for file in &*files {
        for name in &file.outline.test_modules {
            let mut module = file.module.clone();
            module.push(name.clone());
            test_modules.push(module);
        }
    }
    let has_library = files.iter().any(|file| file.path.ends_with("/src/lib.rs"));
    files.retain(|file| {
        let is_test = test_modules.iter().any(|module| file.module.starts_with(module));
        let is_program = has_library && file.path.ends_with("/src/main.rs");
        !is_test && !is_program
    });
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::outline::tests::outline;
    use super::*;

    /// One crate `x`; `sources`: path under `crates/x/src/`, text.
    pub(in crate::tidy) fn one_package(sources: &[(&str, &str)]) -> Vec<Package> {
        let file = |(path, text): &(&str, &str)| (format!("crates/x/src/{path}"), outline(text));
        let files = sources.iter().map(file).collect();
        packages(&[("wellhead-x".to_owned(), "crates/x".to_owned())], files)
    }

    fn check(paths: &[(&str, &str)], expected: &[&str]) {
        let packages = one_package(paths);
        assert_eq!(packages[0].name, "x");
        let found: Vec<String> =
            packages[0].files.iter().map(|file| file.module.join("::")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn modules_by_path() {
        check(
            &[("lib.rs", ""), ("a.rs", ""), ("a/b.rs", ""), ("c/mod.rs", ""), ("main.rs", "")],
            &["", "a", "a::b", "c"],
        );
    }
    #[test]
    fn files_of_tests() {
        check(
            &[
                ("main.rs", "#[cfg(test)] mod kit;"),
                ("kit.rs", ""),
                ("kit/part.rs", ""),
                ("a/tests.rs", ""),
                ("tests/b.rs", ""),
                ("c_tests.rs", ""),
                ("bin/d.rs", ""),
            ],
            &[""],
        );
    }
    #[test]
    fn files_of_others() {
        let files = vec![("crates/xy/src/lib.rs".to_owned(), outline(""))];
        let folders = [("x".to_owned(), "crates/x".to_owned())];
        assert!(packages(&folders, files)[0].files.is_empty());
    }
}
