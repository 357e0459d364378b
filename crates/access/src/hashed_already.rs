//! A hasher for maps whose keys are hashes.

use std::hash::Hasher;

use xxhash_rust::xxh3::xxh3_64;

/// Takes a number for its hash.
#[derive(Debug, Default)]
pub(crate) struct HashedAlready(u64);

impl Hasher for HashedAlready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only `u64` are hashed, by `write_u64`; this keeps it a hasher of anything.
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
