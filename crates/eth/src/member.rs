//! Looking up members of a raw JSON object, where being misled would matter.
//!
//! A reader of `{"toBlock":"0x1","toBlock":"latest"}` may take either: Go
//! takes the last, others the first or none, and Go also takes `"TOBLOCK"` for
//! the same. If we took one and the upstream the other, an answer about the
//! head could be kept as one about a final block. So everything ambiguous is
//! refused here. For plain lookups see `wellhead_jsonrpc::raw`.

use wellhead_jsonrpc::raw;

/// The value is no object, or one that can be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmbiguousMember;

/// The raw values of the named members, `None` for each that is absent.
pub fn find_members<'a, const N: usize>(
    object: &'a [u8],
    names: [&str; N],
) -> Result<[Option<&'a [u8]>; N], AmbiguousMember> {
    if raw::trim(object).first() != Some(&b'{') {
        return Err(AmbiguousMember);
    }
    let mut found = [None; N];
    for (key, value) in raw::members(object) {
        for (slot, name) in found.iter_mut().zip(names) {
            if key == name {
                if slot.replace(value).is_some() {
                    return Err(AmbiguousMember);
                }
            } else if key.eq_ignore_ascii_case(name) {
                return Err(AmbiguousMember);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(object: &str, want: Result<[Option<&str>; 2], AmbiguousMember>) {
        let found = find_members(object.as_bytes(), ["from", "to"]);
        let want = want.map(|values| values.map(|value| value.map(str::as_bytes)));
        assert_eq!(found, want, "{object}");
    }

    #[test]
    fn members_are_found_wherever_they_are() {
        check("{}", Ok([None, None]));
        check(
            " {\"to\" : \"a\" , \"from\":[{}, \"]\"] } ",
            Ok([Some("[{}, \"]\"]"), Some("\"a\"")]),
        );
        check(r#"{"x":{"from":1},"to":-1.5e3}"#, Ok([None, Some("-1.5e3")]));
        check(r#"{"x":"\"}","to":null}"#, Ok([None, Some("null")]));
    }

    #[test]
    fn an_escaped_key_is_the_same_key() {
        check(r#"{"\u0074o":1}"#, Ok([None, Some("1")]));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        check(r#"{"to":1,"to":2}"#, Err(AmbiguousMember));
        check(r#"{"to":1,"t\u006f":1}"#, Err(AmbiguousMember));
        check(r#"{"TO":1}"#, Err(AmbiguousMember));
        check(r#"{"to":1,"From":1}"#, Err(AmbiguousMember));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for value in ["", "null", "[]", "[{}]", "1", "\"{}\""] {
            check(value, Err(AmbiguousMember));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = find_members(&bytes, ["from", "to"]);
        }
    }
}
