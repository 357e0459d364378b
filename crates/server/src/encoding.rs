//! Which content coding a client wants, as `Accept-Encoding` says with its q-values.
//!
//! Only the choice; the work is in `compress`.

use crate::headers::RequestHeaders;

/// A coding that answers can be sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Zstd,
    Gzip,
}

impl Coding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

/// The coding the client likes best, zstd before gzip when it likes both the
/// same; `None` for identity, also when the client refuses that: an answer it
/// may not like is more use than a 406.
pub(crate) fn choose(headers: RequestHeaders<'_>) -> Option<Coding> {
    let (mut zstd, mut gzip, mut identity, mut other) = (None, None, None, None);
    for value in headers.all("accept-encoding") {
        for item in std::str::from_utf8(value).ok()?.split(',') {
            let mut pieces = item.split(';');
            let name = pieces.next().unwrap_or_default().trim();
            let weight = pieces.find_map(weight_of).unwrap_or(1000);
            let slot = if name.eq_ignore_ascii_case("zstd") {
                &mut zstd
            } else if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
                &mut gzip
            } else if name.eq_ignore_ascii_case("identity") {
                &mut identity
            } else if name == "*" {
                &mut other
            } else {
                continue;
            };
            *slot = Some(weight);
        }
    }
    // What is not named has the weight of `*`, else none.
    let zstd: u16 = zstd.or(other).unwrap_or(0);
    let gzip = gzip.or(other).unwrap_or(0);
    let (coding, weight) = if zstd >= gzip { (Coding::Zstd, zstd) } else { (Coding::Gzip, gzip) };
    // Identity counts only when it was named: unnamed it is allowed, not preferred.
    (weight > 0 && weight >= identity.unwrap_or(0)).then_some(coding)
}

/// `q=0.5` in thousandths; a weight that makes no sense means "not acceptable".
fn weight_of(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let (whole, fraction) = match value.trim().split_once('.') {
        Some(parts) => parts,
        None => (value.trim(), ""),
    };
    if fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Some(0);
    }
    let thousandths = format!("{fraction:0<3}").parse().unwrap_or(0);
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_head;

    fn check(lines: &[&str], expected: Option<Coding>) {
        let lines: String = lines.iter().map(|line| format!("| accept-encoding: {line}")).collect();
        with_head(&format!("POST / {lines}"), |head| {
            assert_eq!(choose(head.headers), expected, "{lines}");
        });
    }

    #[test]
    fn what_is_named_is_used() {
        check(&["gzip"], Some(Coding::Gzip));
        check(&["x-gzip"], Some(Coding::Gzip));
        check(&["GZip, deflate"], Some(Coding::Gzip));
        check(&["gzip, deflate, br, zstd"], Some(Coding::Zstd));
        check(&["gzip", "zstd"], Some(Coding::Zstd));
        check(&["*"], Some(Coding::Zstd));
    }

    #[test]
    fn nothing_named_is_identity() {
        check(&[], None);
        check(&[""], None);
        check(&["br, deflate"], None);
        check(&["identity"], None);
    }

    #[test]
    fn weights_are_honoured() {
        check(&["gzip;q=1.0, zstd;q=0.5"], Some(Coding::Gzip));
        check(&["gzip;q=0.2, zstd; Q=0.201"], Some(Coding::Zstd));
        check(&["gzip;q=0"], None);
        check(&["gzip;q=0, *"], Some(Coding::Zstd));
        check(&["zstd;q=0, gzip;q=0.0, *;q=1"], None);
        check(&["*;q=0"], None);
        check(&["gzip;q=0.5, identity;q=1"], None);
        check(&["gzip;q=0.5, identity;q=0.5"], Some(Coding::Gzip));
        check(&["identity;q=0, *;q=0"], None);
    }

    #[test]
    fn senseless_weights_are_refusals() {
        check(&["gzip;q=2"], None);
        check(&["gzip;q=-1"], None);
        check(&["gzip;q=0.1234"], None);
        check(&["gzip;q=a"], None);
        check(&["gzip;q="], None);
        check(&["gzip;level=3"], Some(Coding::Gzip));
    }
}
