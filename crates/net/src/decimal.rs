//! Numbers as decimal digits, for heads that `h1` and `hpack` write.

/// Decimal digits, without the formatting machinery.
pub(crate) fn put_decimal(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written() {
        for number in [0, 9, 10, 4096, usize::MAX] {
            let mut out = Vec::new();
            put_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
