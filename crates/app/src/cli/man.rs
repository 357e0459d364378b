//! `wellhead man`: a manual page for each command, from the texts of `--help`.
//!
//! The layout of examples is kept as it is: lines of a shell must not be filled to a paragraph.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::Cli;
use crate::config::PLACES;

/// What the examples of a help text begin with.
const EXAMPLES: &str = "Examples:";

/// One page: the name of its file, and its text.
#[derive(Debug)]
pub(crate) struct ManPage {
    pub(crate) file: String,
    pub(crate) text: Vec<u8>,
}

/// Writes all pages into this directory, which is made if it does not exist; how many they are.
pub fn write_pages(folder: &Path) -> io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    let pages = pages()?;
    for page in &pages {
        std::fs::write(folder.join(&page.file), &page.text)?;
    }
    Ok(pages.len())
}

/// The pages of the program and of each command that is not hidden.
pub(crate) fn pages() -> io::Result<Vec<ManPage>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add_pages(&root, None, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, above: Option<&str>, pages: &mut Vec<ManPage>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    pages.push(ManPage { file: format!("{name}.1"), text: text(command, &name, above)? });
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add_pages(below, Some(&name), pages)?;
    }
    Ok(())
}

fn text(command: &Command, name: &str, above: Option<&str>) -> io::Result<Vec<u8>> {
    // Without a date, as two builds of one source are equal; an empty one would be left out of the row of fields.
    let man = Man::new(command.clone())
        .title(name)
        .date(" ")
        .source(format!("wellhead {}", env!("CARGO_PKG_VERSION")))
        .manual("wellhead");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if command.get_opts().next().is_some() || command.get_positionals().next().is_some() {
        man.render_options_section(&mut out)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(help) = command.get_after_help() {
        let help = help.to_string();
        let (notes, examples) = match help.split_once(EXAMPLES) {
            Some((notes, examples)) => (notes, examples),
            None => (&*help, ""),
        };
        notes_section(notes).to_writer(&mut out)?;
        section("EXAMPLES", examples).to_writer(&mut out)?;
    }
    match above {
        Some(above) => section("SEE ALSO", &format!("{above}(1)")).to_writer(&mut out)?,
        None => {
            section("FILES", &PLACES.map(|place| format!("{place}\n")).concat())
                .to_writer(&mut out)?;
            let token =
                "WELLHEAD_ADMIN_TOKEN\n    the token that commands send to an admin listener";
            section("ENVIRONMENT", token).to_writer(&mut out)?;
        }
    }
    Ok(out)
}

/// Paragraphs, which are filled but for indented lines.
fn notes_section(notes: &str) -> Roff {
    let mut roff = Roff::new();
    let notes = notes.trim();
    if notes.is_empty() {
        return roff;
    }
    roff.control("SH", ["NOTES"]);
    for line in notes.lines() {
        match line.trim_end() {
            "" => roff.control("PP", []),
            line => roff.text([roman(line)]),
        };
    }
    roff
}

/// A section whose lines stay as they are; nothing where there are none.
fn section(title: &str, body: &str) -> Roff {
    let mut roff = Roff::new();
    let body = body.trim_matches('\n');
    if body.is_empty() {
        return roff;
    }
    roff.control("SH", [title]);
    roff.control("nf", []);
    for line in body.lines() {
        match line.trim_end() {
            "" => roff.control("sp", []),
            line => roff.text([roman(line)]),
        };
    }
    roff.control("fi", []);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(file: &str) -> String {
        let found = pages().expect("in memory").into_iter().find(|page| page.file == file);
        String::from_utf8(found.expect("a page").text).expect("text")
    }

    #[test]
    fn each_command_has_a_page() {
        let files: Vec<String> =
            pages().expect("in memory").into_iter().map(|it| it.file).collect();
        for file in ["wellhead.1", "wellhead-serve.1", "wellhead-doctor.1", "wellhead-key-create.1"]
        {
            assert!(files.iter().any(|it| it == file), "{file} in {files:?}");
        }
        assert!(!files.iter().any(|it| it.contains("help")), "{files:?}");
    }

    #[test]
    fn examples_keep_their_lines() {
        let serve = page("wellhead-serve.1");
        assert!(serve.starts_with(".ie"), "{serve}");
        assert!(serve.contains("\n.SH EXAMPLES\n.nf\n"), "{serve}");
        assert!(
            serve.contains("wellhead serve \\-c wellhead.yaml \\-\\-listen 0.0.0.0:4545\n"),
            "{serve}"
        );
        assert!(serve.contains("\n.SH \"SEE ALSO\"\n"), "{serve}");
        let root = page("wellhead.1");
        assert!(root.contains("/etc/wellhead/wellhead.yaml\n"), "{root}");
        assert!(root.contains("wellhead\\-doctor(1)"), "{root}");
    }
}
