//! The mask of a client's frames.

/// Masks `bytes`, or unmasks them: one undoes the other. `offset` says how many bytes of the
/// frame's payload come before them.
///
/// Eight bytes at a time; calls are short, so wider words would gain nothing.
pub fn apply_mask(mask: [u8; 4], offset: u64, bytes: &mut [u8]) {
    let mut turned = mask;
    // Below four, so nothing is lost.
    turned.rotate_left((offset % 4) as usize);
    let [a, b, c, d] = turned;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = bytes.chunks_exact_mut(8);
    for chunk in &mut words {
        if let Ok(eight) = <[u8; 8]>::try_from(&*chunk) {
            chunk.copy_from_slice(&(u64::from_ne_bytes(eight) ^ word).to_ne_bytes());
        }
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(turned.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_offset_is_masked_as_byte_by_byte() {
        const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
        for length in 0..40_u8 {
            for offset in 0..9_u64 {
                let mut masked: Vec<u8> = (0..length).collect();
                apply_mask(MASK, offset, &mut masked);
                let expected: Vec<u8> = (0..length)
                    .map(|at| at ^ MASK[(offset as usize + usize::from(at)) % 4])
                    .collect();
                assert_eq!(masked, expected, "{length} bytes at {offset}");
            }
        }
    }

    /// RFC 6455, section 5.7.
    #[test]
    fn hello_of_the_rfc() {
        let mut bytes = [0x7f, 0x9f, 0x4d, 0x51, 0x58];
        apply_mask([0x37, 0xfa, 0x21, 0x3d], 0, &mut bytes);
        assert_eq!(&bytes, b"Hello");
    }
}
