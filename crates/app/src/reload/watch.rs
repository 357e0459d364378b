//! Looks whether the config, or a file that it names, has changed.
//!
//! Files are polled: that works on every file system, over the symbolic links that Kubernetes swaps, and where notices
//! of changes are lost. A file is read when its metadata differ, and each [`READ_EVERY`] in any case. As often a config
//! that cannot be used is read again: a file that it names may be there by now.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::{ReloadCause, ReloadDesk, ReloadRecord};
use crate::config::{STUDY_PROFILE, Settings};

/// A change is seen at the second look after it: by then the file is written.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Some file systems do not tell changes by their metadata.
const READ_EVERY: Duration = Duration::from_secs(30);
/// A kernel dates files by a clock that ticks 100 times a second or more often.
const CLOCK_STEP: Duration = Duration::from_millis(20);
/// More of a file is not looked at.
const BYTES_MAX: u64 = 16 << 20;

/// The files that the settings are read from.
pub(crate) fn files(config: &Path, settings: &Settings) -> Vec<PathBuf> {
    let upstreams = settings.chains.iter().flat_map(|(name, chain)| {
        chain.upstreams.iter().map(move |upstream| (name.as_ref(), upstream))
    });
    let named = upstreams.flat_map(|(chain, upstream)| {
        let profile = upstream.profile.as_ref().map(|profile| profile.file.clone());
        // It may not be there yet.
        let study = upstream.study.as_ref();
        let study = study.map(|study| study.place(chain, &upstream.id).join(STUDY_PROFILE));
        let certificates =
            [&upstream.ca_file, &upstream.client_cert_file, &upstream.client_key_file];
        profile.into_iter().chain(study).chain(certificates.into_iter().flatten().cloned())
    });
    let of_issuers = settings.access.jwt.iter().filter_map(|issuer| issuer.ca_file.clone());
    let all = std::iter::once(config.to_owned()).chain(named).chain(of_issuers);
    let mut files: Vec<_> = all.collect();
    files.sort();
    files.dedup();
    files
}

/// What is known of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    metadata: Option<(u64, SystemTime)>,
    digest: u64,
}

/// What files looked like.
#[derive(Debug, Default)]
pub(crate) struct FileMarks {
    marks: HashMap<PathBuf, FileMark>,
    read_at: Option<Instant>,
    /// They differ from what was reloaded, and are looked at once more.
    is_pending: bool,
    /// Until the first look: when the process began to read.
    began: Option<SystemTime>,
}

impl FileMarks {
    /// Marks of files of which the process read the first contents after `began`, by the clock of files. What was
    /// written since may be newer than what was read.
    pub(crate) fn since(began: SystemTime) -> Self {
        Self { began: began.checked_sub(CLOCK_STEP), ..Self::default() }
    }

    /// Looks at the files; true when their contents differ from the last time that this returned true, and have not
    /// changed since the look before; and each [`READ_EVERY`] while the config `is_failing`. Waits for the disk.
    pub(crate) fn look(&mut self, files: &[PathBuf], is_failing: bool, now: Instant) -> bool {
        let reads = self.read_at.is_none_or(|at| now.saturating_duration_since(at) >= READ_EVERY);
        if reads {
            self.read_at = Some(now);
        }
        let began = self.began.take();
        let mut has_changed = reads && is_failing;
        for file in files {
            let known = self.marks.get(file).copied();
            let metadata =
                fs::metadata(file).ok().and_then(|it| Some((it.len(), it.modified().ok()?)));
            if !reads && known.is_some_and(|known| known.metadata == metadata) {
                continue;
            }
            let digest = digest(file);
            has_changed |= known.is_some_and(|known| known.digest != digest);
            has_changed |=
                began.zip(metadata).is_some_and(|(began, (_, modified))| modified >= began);
            self.marks.insert(file.clone(), FileMark { metadata, digest });
        }
        self.marks.retain(|file, _| files.contains(file));
        if has_changed {
            self.is_pending = true;
            return false;
        }
        std::mem::take(&mut self.is_pending)
    }
}

/// Of what cannot be read, as of an empty file: the reload says what is wrong.
fn digest(file: &Path) -> u64 {
    use std::io::Read as _;
    let mut content = Vec::new();
    if let Ok(file) = fs::File::open(file) {
        // What could be read counts.
        let _ = file.take(BYTES_MAX).read_to_end(&mut content);
    }
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Asks for a reload whenever one of the files has changed, for ever. `files` names them as the settings are now;
/// `record` knows whether the config can be used.
pub(crate) async fn run(
    mut marks: FileMarks,
    files: impl Fn() -> Vec<PathBuf> + Send + 'static,
    record: ReloadRecord,
    desk: ReloadDesk,
) {
    loop {
        let (named, is_failing) = (files(), record.is_failing());
        let looked = tokio::task::spawn_blocking(move || {
            let has_changed = marks.look(&named, is_failing, wellhead_dispatch::now());
            (marks, has_changed)
        });
        let Ok((seen, has_changed)) = looked.await else { return };
        marks = seen;
        if has_changed {
            desk.ask(ReloadCause::File);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("wellhead.yaml");
        let (files, now) = ([file.clone()], wellhead_dispatch::now());
        let mut marks = FileMarks::default();
        fs::write(&file, "a").expect("written");
        assert!(
            !marks.look(&files, false, now) && !marks.look(&files, false, now),
            "it is as at the start"
        );
        fs::write(&file, "half").expect("written");
        assert!(!marks.look(&files, false, now), "it may be written yet");
        fs::write(&file, "half and half").expect("written");
        assert!(!marks.look(&files, false, now), "it was");
        assert!(marks.look(&files, false, now) && !marks.look(&files, false, now));
        fs::remove_file(&file).expect("removed");
        assert!(
            !marks.look(&files, false, now) && marks.look(&files, false, now),
            "the reload says that it is gone"
        );
    }

    /// As Kubernetes replaces the files of a ConfigMap.
    #[test]
    fn a_link_that_is_swapped_is_a_change() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for (version, text) in [("..1", "one"), ("..2", "two")] {
            fs::create_dir(at(version)).expect("made");
            fs::write(at(version).join("wellhead.yaml"), text).expect("written");
        }
        symlink("..1", at("..data")).expect("linked");
        symlink("..data/wellhead.yaml", at("wellhead.yaml")).expect("linked");
        let (files, now) = ([at("wellhead.yaml")], wellhead_dispatch::now());
        let mut marks = FileMarks::default();
        assert!(!marks.look(&files, false, now));
        symlink("..2", at("..new")).expect("linked");
        fs::rename(at("..new"), at("..data")).expect("swapped");
        // Both have one length, and may have one time.
        let later = now + READ_EVERY;
        assert!(!marks.look(&files, false, later) && marks.look(&files, false, later));
    }
    #[test]
    fn a_file_that_was_written_while_the_process_began_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("wellhead.yaml");
        fs::write(&file, "a").expect("written");
        let written = fs::metadata(&file).and_then(|it| it.modified()).expect("a time");
        let (files, now) = ([file], wellhead_dispatch::now());
        let looks = |began| {
            let mut marks = FileMarks::since(began);
            [(); 3].map(|()| marks.look(&files, false, now))
        };
        assert_eq!(looks(written), [false, true, false]);
        assert_eq!(looks(written + CLOCK_STEP + Duration::from_millis(1)), [false; 3]);
    }

    #[test]
    fn a_config_that_cannot_be_used_is_read_again_now_and_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("wellhead.yaml");
        fs::write(&file, "nonsense").expect("written");
        let (files, now) = ([file], wellhead_dispatch::now());
        let mut marks = FileMarks::default();
        assert!(!marks.look(&files, false, now) && !marks.look(&files, true, now));
        let later = now + READ_EVERY;
        assert!(!marks.look(&files, true, later) && marks.look(&files, true, later));
        assert!(!marks.look(&files, true, later), "not at every look");
    }
}
