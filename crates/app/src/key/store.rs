//! Where keys are kept, and how they are changed there: a file, for now.
//!
//! A change reads the file, changes it and puts the new one in its place in one step (`rename`), so that a
//! reader never sees half of it and a crash leaves one or the other. Changes wait for each other by a lock
//! on the folder: a lock on the file itself would be one on the file that was replaced. The new file has the
//! mode and the owner of the old one, or mode 0600.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use wellhead_access::KeyRecord;

use super::list::KeyList;
use super::problem::KeyProblem;
use crate::config::{KEYS_BYTES_MAX, file};

/// A change that another one holds up for longer gives up.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// What only its owner may read.
const MODE: u32 = 0o600;

/// Where keys are kept: a file with a record on each line.
#[derive(Debug, Clone)]
pub(crate) struct KeyStore(pub(crate) PathBuf);

/// What came of a change, and all keys after it.
#[derive(Debug)]
pub(crate) struct ChangedKeys<T> {
    pub(crate) outcome: T,
    pub(crate) records: Vec<KeyRecord>,
}

impl KeyStore {
    /// What it is called in a message.
    pub(crate) fn place(&self) -> String {
        self.0.display().to_string()
    }

    /// All keys.
    pub(crate) fn read(&self) -> Result<KeyList, KeyProblem> {
        match read(&self.0)? {
            Some(text) => parse(&self.0, &text),
            None => Err(KeyProblem::System(format!(
                "there is no file of keys at `{}`: `wellhead key create` makes it",
                self.0.display()
            ))),
        }
    }

    /// Changes the keys; nothing is changed where `change` fails. Blocks while the disk does, and for
    /// [`LOCK_WAIT`] while another change is under way.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut KeyList) -> Result<T, KeyProblem>,
    ) -> Result<ChangedKeys<T>, KeyProblem> {
        let path = &self.0;
        let failed = |what: &str, error: io::Error| {
            KeyProblem::System(format!("`{}` {what}: {error}", path.display()))
        };
        // A link stays a link: what it leads to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = match target.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        let _lock = lock(&folder).map_err(|error| failed("cannot be changed", error))?;
        let text = read(&target)?;
        let mut list = parse(path, text.as_deref().unwrap_or_default())?;
        let outcome = change(&mut list)?;
        let changed = list.to_text();
        if text.as_ref() != Some(&changed) {
            replace(&folder, &target, &changed)
                .map_err(|error| failed("cannot be written", error))?;
        }
        Ok(ChangedKeys { outcome, records: list.records().cloned().collect() })
    }
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>, KeyProblem> {
    match file::read_regular(path, KEYS_BYTES_MAX).and_then(file::text) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(KeyProblem::System(format!("`{}` cannot be read: {error}", path.display())))
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<KeyList, KeyProblem> {
    KeyList::read(text).map_err(|problems| {
        let place = path.display();
        KeyProblem::System(format!(
            "`{place}` has lines that cannot be read, so it is left as it is:\n  {}",
            problems.join("\n  ")
        ))
    })
}

/// Waits on a thread of its own, as a lock cannot be waited for with a bound; one that comes too late is
/// let go at once.
fn lock(folder: &Path) -> io::Result<File> {
    let place = folder.display();
    let folder = File::open(folder)
        .map_err(|error| io::Error::new(error.kind(), format!("its folder `{place}`: {error}")))?;
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().name("wellhead-key-lock".to_owned()).spawn(move || {
        let _ = sender.send(folder.lock().map(|()| folder));
    })?;
    receiver.recv_timeout(LOCK_WAIT).unwrap_or_else(|_| {
        let what = format!("another change of its folder did not end within {LOCK_WAIT:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    })
}

fn replace(folder: &Path, target: &Path, text: &str) -> io::Result<()> {
    let name = target.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let mut new = std::ffi::OsString::from(".");
    new.push(name);
    new.push(".new");
    let new = folder.join(new);
    let written = write_beside(&new, target, text).and_then(|()| fs::rename(&new, target));
    if written.is_err() {
        let _ = fs::remove_file(&new);
        return written;
    }
    // Else a power cut could bring the old file back, and with it a key that was revoked.
    File::open(folder)?.sync_all()
}

fn write_beside(new: &Path, target: &Path, text: &str) -> io::Result<()> {
    // What a crash left; the lock is ours.
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(new)?;
    if let Ok(old) = fs::metadata(target) {
        let own = file.metadata()?;
        if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
            // Else the service that reads it could not, after a change by another user.
            chown(new, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use wellhead_access::Pepper;

    use super::*;

    fn record(number: u32) -> KeyRecord {
        let id = format!("{number:08}").parse().unwrap();
        KeyRecord::new(id, Pepper::well_known().hash("x"), "acme")
    }

    fn add(store: &KeyStore, number: u32) -> Result<usize, KeyProblem> {
        let push = |list: &mut KeyList| {
            list.push(record(number));
            Ok(())
        };
        store.change(push).map(|changed| changed.records.len())
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_that_is_missing_is_made_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.jsonl");
        let store = KeyStore(path.clone());
        let problem = store.read().unwrap_err().to_string();
        assert!(problem.contains("there is no file of keys at"), "{problem}");
        assert_eq!(add(&store, 1).unwrap(), 1);
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(add(&store, 2).unwrap(), 2);
        assert_eq!(mode(&path), 0o640);
        assert_eq!(store.read().unwrap().records().count(), 2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn two_changes_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore(folder.path().join("keys.jsonl"));
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    (0..10)
                        .for_each(|n| assert!(add(store, worker * 10 + n).unwrap() > n as usize));
                });
            }
        });
        assert_eq!(store.read().unwrap().records().count(), 40);
    }

    #[test]
    fn what_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.jsonl");
        let store = KeyStore(path.clone());
        add(&store, 1).unwrap();
        let before = fs::read_to_string(&path).unwrap();
        let failed = store.change(|list| {
            list.push(record(2));
            Err::<(), _>(KeyProblem::Wrong("no".to_owned()))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        fs::write(&path, "{\"id\":1}\n").unwrap();
        let problem = add(&store, 2).unwrap_err().to_string();
        assert!(problem.contains("so it is left as it is:\n  line 1: "), "{problem}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"id\":1}\n");
        let nowhere = KeyStore(folder.path().join("none/keys.jsonl"));
        let problem = add(&nowhere, 1).unwrap_err().to_string();
        assert!(problem.contains("none/keys.jsonl` cannot be changed: "), "{problem}");
        let no_file = KeyStore(folder.path().to_owned());
        let problem = add(&no_file, 1).unwrap_err().to_string();
        assert!(problem.contains("cannot be read: it is not a regular file"), "{problem}");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "# mine\n").unwrap();
        symlink(&real, &link).unwrap();
        add(&KeyStore(link.clone()), 1).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&real).unwrap().starts_with("# mine\n{"));
    }
}
