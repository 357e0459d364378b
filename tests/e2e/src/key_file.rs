//! A file of keys as an operator has one, with the texts that its clients have.

use std::path::PathBuf;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tempfile::TempDir;
use wellhead_access::{ApiKey, KeyRecord, Pepper, UnixSeconds};

use crate::secrets::guard_secret;

/// A file of keys that can be changed. Each key is drawn, so no two runs have one in common.
#[derive(Debug)]
pub struct KeyFile {
    folder: TempDir,
    records: Vec<KeyRecord>,
}

impl KeyFile {
    /// An empty one.
    ///
    /// # Panics
    /// As everywhere here, when there is no room for it.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it writes a file")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a file");
        let file = Self { folder, records: Vec::new() };
        file.write();
        file
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("keys.jsonl")
    }

    /// Adds a key of this tenant, with what `with` changes of its record, and returns its text.
    pub fn add(&mut self, tenant: &str, with: impl FnOnce(&mut KeyRecord)) -> String {
        let (text, hash, id) = new_key("live");
        let mut record = KeyRecord::new(id, hash, tenant);
        with(&mut record);
        self.records.push(record);
        self.write();
        text
    }

    /// Adds this many keys of the tenant, which no client uses.
    pub fn add_many(&mut self, tenant: &str, count: usize) {
        for _ in 0..count {
            let (_, hash, id) = draw_key("live");
            self.records.push(KeyRecord::new(id, hash, tenant));
        }
        self.write();
    }

    /// Makes the key of this text invalid, as of long ago.
    ///
    /// # Panics
    /// When it is not in the file.
    pub fn revoke(&mut self, text: &str) {
        self.change(text, |record| record.revoked_at = Some(UnixSeconds(1)));
    }

    /// Changes the record of the key of this text.
    ///
    /// # Panics
    /// When it is not in the file.
    pub fn change(&mut self, text: &str, with: impl FnOnce(&mut KeyRecord)) {
        let id = ApiKey::parse(text).expect("a key of this file").id();
        let record = self.records.iter_mut().find(|record| record.id == id);
        with(record.expect("a key of this file"));
        self.write();
    }

    /// Replaced as a whole, as careful programs do: half a file is never read.
    fn write(&self) {
        let lines: String = self.records.iter().map(|record| record.to_line() + "\n").collect();
        let new = self.folder.path().join("new");
        std::fs::write(&new, lines).expect("the folder is ours");
        std::fs::rename(new, self.path()).expect("the folder is ours");
    }
}

/// The text of a key, its hash and its id. The text may be in no output of wellhead.
///
/// # Panics
/// When this is no first word of a key.
#[must_use]
pub fn new_key(env: &str) -> (String, wellhead_access::KeyHash, wellhead_access::KeyId) {
    let (text, hash, id) = draw_key(env);
    guard_secret(&text);
    (text, hash, id)
}

fn draw_key(env: &str) -> (String, wellhead_access::KeyHash, wellhead_access::KeyId) {
    let made = ApiKey::generate(env, &mut StdRng::from_os_rng()).expect("a good first word");
    let text = made.text.expose().to_owned();
    let hash = Pepper::well_known().hash(&text);
    (text, hash, made.id)
}
