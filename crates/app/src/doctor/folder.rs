//! The places where wellhead writes: whether it may, and whether there is room.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use crate::config::Settings;
use crate::doctor::diagnosis::{Diagnosis, HealthCheck};
use crate::doctor::machine::mebibytes;
use crate::state;
use crate::terminal::environment;

/// Less room than this is told.
const ROOM_DOUBTFUL: u64 = 256 << 20;
/// With less than this the next file may not be written.
const ROOM_MIN: u64 = 4 << 20;

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WritePlace {
    /// The setting that names it.
    setting: &'static str,
    folder: PathBuf,
    /// wellhead makes the folder itself.
    is_made: bool,
    /// How large what is in it may become.
    bytes_max: u64,
}

/// All places of these settings.
pub(crate) fn places(settings: &Settings) -> Vec<WritePlace> {
    let parent = |file: &Path| match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        Some(_) | None => PathBuf::from("."),
    };
    let place =
        |setting, folder, is_made, bytes_max| WritePlace { setting, folder, is_made, bytes_max };
    let mut places = Vec::new();
    match &settings.state {
        Some(file) => places.push(place("state", parent(file), false, 0)),
        None if settings.has_caps() => {
            let file = state::default_path(&environment);
            places.extend(file.map(|file| place("state", parent(&file), true, 0)));
        }
        None => {}
    }
    if let Some(disk) = settings.cache.disk.as_ref().filter(|_| settings.cache.enabled) {
        places.push(place("cache.disk.path", disk.path.clone(), true, disk.bytes.0));
    }
    if let Some(file) = &settings.usage.file {
        let bytes_max = file.bytes.0.saturating_mul(file.files as u64);
        // Days with little use have small files: room for the largest day is enough to begin with.
        let bytes_max = bytes_max.min(file.bytes.0);
        places.push(place("usage.file.folder", file.folder.clone(), true, bytes_max));
    }
    if let Some(file) = settings.access.keys.as_ref().and_then(|keys| keys.file.as_ref()) {
        places.push(place("access.keys.file", parent(file), false, 0));
    }
    if let Some(acme) = settings.tls.as_ref().and_then(|tls| tls.acme.as_ref()) {
        places.push(place("tls.acme.cache", acme.cache.clone(), true, 0));
    }
    let upstreams = settings.chains.iter().flat_map(|(_, chain)| &chain.upstreams);
    for study in upstreams.filter_map(|upstream| upstream.study.as_ref()) {
        // Many may share one.
        if !places.iter().any(|known| known.folder == study.dir) {
            places.push(place("study.dir", study.dir.clone(), true, 0));
        }
    }
    places
}

/// What a folder is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderFacts {
    state: FolderState,
    /// Bytes that are free for this user.
    free: Option<u64>,
    /// Bytes of the files in it.
    held: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderState {
    Writable,
    Missing,
    /// Something else stands there.
    NoFolder,
    /// This user may not.
    Denied,
}

impl FolderFacts {
    pub(crate) fn read(place: &WritePlace) -> Self {
        // One that is yet to be made is written to where it would be.
        let existing = place.folder.ancestors().find(|it| it.exists()).filter(|_| place.is_made);
        let looked = existing.unwrap_or(&place.folder);
        let state = match fs::metadata(looked) {
            Err(_) => FolderState::Missing,
            Ok(found) if !found.is_dir() => FolderState::NoFolder,
            Ok(_) if access(looked, Access::WRITE_OK | Access::EXEC_OK).is_err() => {
                FolderState::Denied
            }
            Ok(_) => FolderState::Writable,
        };
        let free = statvfs(looked).ok().map(|it| it.f_bavail.saturating_mul(it.f_frsize));
        let held = match fs::read_dir(&place.folder) {
            Ok(entries) => entries.filter_map(|it| Some(it.ok()?.metadata().ok()?.len())).sum(),
            Err(_) => 0,
        };
        Self { state, free, held }
    }
}

/// Of a folder that says nothing in time.
pub(crate) fn hangs(place: &WritePlace) -> Diagnosis {
    let reason = format!("`{}` does not answer", place.folder.display());
    let advice = "see the disk, or the server of the mount: `df`, `dmesg`";
    HealthCheck::new(place.setting, "folder").failed(reason, advice)
}

pub(crate) fn judge(place: &WritePlace, facts: &FolderFacts) -> Diagnosis {
    let check = HealthCheck::new(place.setting, "folder");
    let folder = place.folder.display();
    match facts.state {
        FolderState::Missing => {
            return check
                .failed(format!("`{folder}` does not exist"), format!("`mkdir -p {folder}`"));
        }
        FolderState::NoFolder => {
            let advice = format!("remove what is there, or change `{}`", place.setting);
            return check.failed(format!("`{folder}` is no directory"), advice);
        }
        FolderState::Denied => {
            let reason = format!("`{folder}` cannot be written to by this user");
            let advice = "give it to the user of wellhead (`chown`); under systemd name a folder of `StateDirectory=`";
            return check.failed(reason, advice.to_owned());
        }
        FolderState::Writable => {}
    }
    let Some(free) = facts.free else {
        return check.well(format!("`{folder}` can be written to"));
    };
    let reason = format!("`{folder}` can be written to, {} are free", mebibytes(free));
    let needed = place.bytes_max.saturating_sub(facts.held);
    let advice = format!("free room there, or change `{}`", place.setting);
    if free < ROOM_MIN {
        check.failed(reason, advice)
    } else if free < needed {
        let reason = format!("{reason}; it may take {} more", mebibytes(needed));
        check.doubtful(reason, advice)
    } else if free < ROOM_DOUBTFUL {
        check.doubtful(reason, advice)
    } else {
        check.well(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::diagnosis::CheckHealth::{self, Doubtful, Failed, Well};

    #[test]
    fn folders_are_judged_by_rights_and_room() {
        const MIB: u64 = 1 << 20;
        let cases: [(FolderState, Option<u64>, u64, u64, CheckHealth); 9] = [
            (FolderState::Missing, None, 0, 0, Failed),
            (FolderState::NoFolder, None, 0, 0, Failed),
            (FolderState::Denied, Some(9000 * MIB), 0, 0, Failed),
            (FolderState::Writable, None, 0, 0, Well),
            (FolderState::Writable, Some(9000 * MIB), 0, 4096 * MIB, Well),
            (FolderState::Writable, Some(1000 * MIB), 0, 4096 * MIB, Doubtful),
            (FolderState::Writable, Some(1000 * MIB), 4000 * MIB, 4096 * MIB, Well),
            (FolderState::Writable, Some(100 * MIB), 0, 0, Doubtful),
            (FolderState::Writable, Some(MIB), 0, 0, Failed),
        ];
        for (state, free, held, bytes_max, expected) in cases {
            let place =
                WritePlace { setting: "state", folder: "/x".into(), is_made: false, bytes_max };
            let found = judge(&place, &FolderFacts { state, free, held });
            assert_eq!(found.health, expected, "{found:?}");
        }
    }

    #[test]
    fn a_folder_is_looked_at_where_it_will_be() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("file");
        fs::write(&file, "1234").expect("written");
        let read = |folder: PathBuf, is_made| {
            FolderFacts::read(&WritePlace { setting: "state", folder, is_made, bytes_max: 0 })
        };
        let own = read(root.path().to_owned(), false);
        assert_eq!((own.state, own.held), (FolderState::Writable, 4));
        assert!(own.free.is_some());
        assert_eq!(read(root.path().join("a/b"), true).state, FolderState::Writable);
        assert_eq!(read(root.path().join("a/b"), false).state, FolderState::Missing);
        assert_eq!(read(file, false).state, FolderState::NoFolder);
    }
}
