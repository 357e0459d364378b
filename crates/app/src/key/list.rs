//! The lines of a file of keys, as they are changed: comments and order stay as they are.

use wellhead_access::{KeyId, KeyRecord};

/// A file of keys, line by line.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    lines: Vec<KeyLine>,
}

#[derive(Debug)]
enum KeyLine {
    /// A comment or a blank line.
    Other(String),
    Key(Box<KeyRecord>),
}

impl KeyList {
    /// Reads a file. `Err`: what is wrong with its lines; a file with a problem is not changed, as the line
    /// would be lost.
    pub(crate) fn read(text: &str) -> Result<Self, Vec<String>> {
        let mut records = KeyRecord::read_file(text)?.into_iter();
        let line = |line: &str| {
            let is_other = line.trim().is_empty() || line.trim().starts_with('#');
            match if is_other { None } else { records.next() } {
                Some(record) => KeyLine::Key(Box::new(record)),
                None => KeyLine::Other(line.to_owned()),
            }
        };
        Ok(Self { lines: text.lines().map(line).collect() })
    }

    /// As it is written to the file.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                KeyLine::Other(line) => text.push_str(line),
                KeyLine::Key(record) => text.push_str(&record.to_line()),
            }
            text.push('\n');
        }
        text
    }

    /// The keys, in their order.
    pub(crate) fn records(&self) -> impl Iterator<Item = &KeyRecord> {
        self.lines.iter().filter_map(|line| match line {
            KeyLine::Key(record) => Some(&**record),
            KeyLine::Other(_) => None,
        })
    }

    /// The key with this id. Of two the first counts, here as in the table.
    pub(crate) fn get(&self, id: KeyId) -> Option<&KeyRecord> {
        self.records().find(|record| record.id == id)
    }

    /// As [`Self::get`], to change it.
    pub(crate) fn get_mut(&mut self, id: KeyId) -> Option<&mut KeyRecord> {
        self.lines.iter_mut().find_map(|line| match line {
            KeyLine::Key(record) if record.id == id => Some(&mut **record),
            KeyLine::Key(_) | KeyLine::Other(_) => None,
        })
    }

    /// Adds a key, whose id must be new.
    pub(crate) fn push(&mut self, record: KeyRecord) {
        debug_assert!(self.get(record.id).is_none(), "the first of two keys with one id counts");
        self.lines.push(KeyLine::Key(Box::new(record)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_order_stay() {
        let hash = "00".repeat(32);
        let one = format!(r#"{{"id":"00000001","hash":"{hash}","tenant":"acme"}}"#);
        let other = one.replace("00000001", "00000002");
        let text = format!("# ours\n{one}\n\n# theirs\n{other}\n");
        let mut list = KeyList::read(&text).unwrap();
        assert_eq!(list.to_text(), text);
        let id = "00000002".parse().unwrap();
        list.get_mut(id).unwrap().note = Some("n".to_owned());
        assert_eq!(list.get(id).unwrap().note.as_deref(), Some("n"));
        assert!(list.to_text().starts_with(&format!("# ours\n{one}\n\n# theirs\n")));
        assert_eq!(KeyList::read("{}\n").unwrap_err().len(), 1);
        assert_eq!(KeyList::default().to_text(), "");
    }
}
