//! The units for systemd, as `systemd-analyze` judges them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wellhead_e2e::{binary, tool};

use super::{deploy, said};

/// On its scale from 0 (closed) to 10 (open).
const EXPOSURE_MAX: f64 = 1.5;

/// The service beside its socket, with a program that is on this machine.
fn unit(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(deploy("systemd/wellhead.service")).unwrap();
    let file = folder.join("wellhead.service");
    let program = binary();
    fs::write(&file, text.replace("/usr/local/bin/wellhead", program.to_str().unwrap())).unwrap();
    fs::copy(deploy("systemd/wellhead.socket"), folder.join("wellhead.socket")).unwrap();
    file
}

#[test]
fn units_have_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let (service, socket) = (unit(folder.path()), folder.path().join("wellhead.socket"));
    let (code, printed) =
        said(Command::new(tool("systemd-analyze")).arg("verify").args([service, socket]));
    assert_eq!((code, printed.as_str()), (Some(0), ""));
}

#[test]
fn unit_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut analyze = Command::new(tool("systemd-analyze"));
    analyze.args(["security", "--offline=yes", "--no-pager"]).arg(unit(folder.path()));
    let (code, printed) = said(&mut analyze);
    let exposure = printed.lines().find_map(|line| {
        let (_, figure) = line.split_once("Overall exposure level for wellhead.service: ")?;
        figure.split(' ').next()?.parse::<f64>().ok()
    });
    let exposure = exposure.unwrap_or_else(|| panic!("{code:?}\n{printed}"));
    assert!(exposure <= EXPOSURE_MAX, "{exposure}\n{printed}");
}
