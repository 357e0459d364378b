//! The files that the settings of callers and usage name: keys, public keys, authorities, a folder.

use std::path::{Path, PathBuf};

use wellhead_access::KeyRecord;

use super::access::Access;
use super::callers;
use super::file;
use super::problem::{Problem, SettingPath};
use super::usage::UsageConfig;
use super::{RELATIVE_PATHS, find_authorities};

impl Access {
    /// Makes the paths absolute to `base` and reports files that are missing or cannot be used. Returns the
    /// keys of the file of keys.
    pub(super) fn find_files(
        &mut self,
        base: &Path,
        may_lack_keys: bool,
        problems: &mut Vec<Problem>,
    ) -> Option<Vec<KeyRecord>> {
        let path = SettingPath::root().key("access");
        for (index, issuer) in self.jwt.iter_mut().enumerate() {
            let item = path.key("jwt").item(index);
            let public_key = issuer.public_key.as_mut().map(|file| &mut file.0);
            if let Some(file) = found(public_key, base)
                && let Err(problem) = callers::public_key(file)
            {
                problems.push(unusable(&item.key("public_key"), file, &problem));
            }
            find_authorities(issuer.ca_file.as_mut(), &item.key("ca_file"), base, problems);
        }
        let file = found(self.keys.as_mut()?.file.as_mut(), base)?;
        let path = path.key("keys").key("file");
        if !file.exists() && may_lack_keys {
            return None;
        }
        if !file.exists() {
            let told = format!("there is no file at `{}`", file.display());
            let hint = "make it with its first key: `wellhead key create`";
            problems.push(Problem::error(&path, told).hint(hint).hint(RELATIVE_PATHS));
            return None;
        }
        let read = read_keys(file);
        let hint = "each line is one key, as `wellhead key` writes it";
        let told = |problem: &String| Problem::error(&path, problem.as_str()).hint(hint);
        read.map_err(|wrong| problems.extend(wrong.iter().map(told))).ok()
    }

    /// All files that are read, and must not be written to.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let keys = self.keys.iter().filter_map(|keys| keys.file.as_ref());
        keys.chain(self.jwt.iter().flat_map(|jwt| {
            let public_key = jwt.public_key.as_ref().map(|file| &file.0);
            public_key.into_iter().chain(&jwt.ca_file)
        }))
    }
}

impl UsageConfig {
    /// Makes the folder of its files absolute to `base`; it may be made later, but not where a file is.
    pub(super) fn find_files(&mut self, base: &Path, problems: &mut Vec<Problem>) {
        let folder = self.file.as_mut().map(|file| &mut file.folder);
        if let Some(folder) = found(folder, base)
            && folder.exists()
            && !folder.is_dir()
        {
            let told = format!("`{}` is not a directory", folder.display());
            let hint =
                "name the directory for the files of usage; it is created if it does not exist";
            let path = SettingPath::root().key("usage").key("file").key("folder");
            problems.push(Problem::error(&path, told).hint(hint));
        }
    }
}

/// Some 300 bytes for each of a million keys.
pub(crate) const KEYS_BYTES_MAX: u64 = 512 << 20;

/// Reads a file of keys. `Err`: why not, or what is wrong with its lines.
pub(crate) fn read_keys(path: &Path) -> Result<Vec<KeyRecord>, Vec<String>> {
    let text = file::read_any(path, KEYS_BYTES_MAX)
        .and_then(file::text)
        .map_err(|error| vec![format!("`{}` cannot be read: {error}", path.display())])?;
    KeyRecord::read_file(&text)
}

/// A path as the process sees it; `None` for one that is not given, or could not be read.
pub(super) fn found<'p>(path: Option<&'p mut PathBuf>, base: &Path) -> Option<&'p Path> {
    let path = path.filter(|path| !path.as_os_str().is_empty())?;
    *path = base.join(&*path);
    Some(path)
}

fn unusable(at: &SettingPath, file: &Path, why: &str) -> Problem {
    let told = match file.exists() {
        true => format!("`{}` cannot be used: {why}", file.display()),
        false => format!("there is no file at `{}`", file.display()),
    };
    Problem::error(at, told).hint(RELATIVE_PATHS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// They were: a config in `conf` looked for its keys in `conf/conf`.
    #[test]
    fn paths_are_not_seen_from_the_directory_twice() {
        let yaml = "access: { keys: { file: keys.jsonl }, anonymous: deny }\n\
                    chains: { eth: { id: 1, upstreams: [{ id: a, url: 'http://a' }] } }";
        let mut settings = config::sound(yaml);
        // As loading a config does.
        let (base, mut problems) = (Path::new("conf"), Vec::new());
        settings.find_files(base, &mut problems);
        settings.access.find_files(base, true, &mut problems);
        let keys = settings.access.keys.and_then(|keys| keys.file);
        assert_eq!(keys.as_deref(), Some(Path::new("conf/keys.jsonl")));
    }
}
