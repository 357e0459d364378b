//! Each call is answered exactly once, with its own id, byte for byte and in order.

use crate::check::{Violation, replies};
use crate::evidence::{Evidence, Flow, Request};

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        if let Err(what) = check_one(request) {
            let at = request.answered.as_ref().map_or(request.at, |answered| answered.at);
            let what = format!("#{number}: {what}");
            violations.push(Violation { checker: "answers", at, what });
        }
    }
    violations
}

fn check_one(request: &Request) -> Result<(), String> {
    let Some(answered) = &request.answered else {
        return match request.hung_up {
            Some(_) => Ok(()),
            None => Err("was never answered".to_owned()),
        };
    };
    if request.hung_up.is_some() {
        return Err("was answered after the client was gone".to_owned());
    }
    // The client knows that what it got is not whole.
    if answered.flow == Flow::Cut {
        return Ok(());
    }
    let expected: Vec<&str> = request.items.iter().filter_map(|it| it.id.as_deref()).collect();
    if expected.is_empty() {
        return match (answered.status, answered.body.len()) {
            (204, 0) => Ok(()),
            (status, bytes) => Err(format!("notifications got {status} with {bytes} bytes")),
        };
    }
    let replies = replies(&answered.body, request.is_batch)?;
    let ids: Vec<&str> = replies.iter().map(|it| it.id.map_or("null", |id| id.get())).collect();
    if ids != expected {
        return Err(format!("asked with {expected:?}, answered with {ids:?}"));
    }
    for reply in &replies {
        if reply.result.is_some() == reply.error.is_some() {
            return Err("a reply needs either a result or an error".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::check::sample::{answered, evidence, read, request};
    use crate::evidence::Item;

    /// Items with these ids (`-`: none), the body, and what is wrong.
    fn check(ids: &str, is_batch: bool, body: &str, expected: Option<&str>) {
        let items = ids.split_whitespace().map(|id| match id {
            "-" => Item { id: None, ..read("0") },
            id => read(id),
        });
        let mut request = request(items.collect());
        request.is_batch = is_batch;
        let mut answer = answered(body);
        answer.status = if body.is_empty() { 204 } else { 200 };
        request.answered = Some(answer);
        let found = super::check(&evidence(vec![request], Vec::new()));
        match expected {
            None => assert_eq!(found, [], "{ids} {body}"),
            Some(words) => assert!(
                found.len() == 1 && found[0].what.contains(words),
                "{ids} {body}: {found:?}"
            ),
        }
    }

    #[test]
    fn ids_come_back_as_they_went() {
        check("1", false, r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#, None);
        check("1", false, r#"{"jsonrpc":"2.0","id":1.0,"result":"0x1"}"#, Some("answered with"));
        check("\"a\"", false, r#"{"id":"a","result":1}"#, None);
        check("\"a\"", false, r#"{"id":"b","result":1}"#, Some("answered with"));
        let huge = "98765432109876543210987";
        check(huge, false, &format!(r#"{{"id":{huge},"result":1}}"#), None);
        check(huge, false, r#"{"id":9.8765432109876543e22,"result":1}"#, Some("answered with"));
    }

    #[test]
    fn batches_keep_their_order() {
        check("1 - 2", true, r#"[{"id":1,"result":1},{"id":2,"error":{}}]"#, None);
        check("1 2", true, r#"[{"id":2,"result":1},{"id":1,"result":1}]"#, Some("answered with"));
        check("1 2", true, r#"[{"id":1,"result":1}]"#, Some("answered with"));
        check("1", true, r#"[{"id":1,"result":1},{"id":1,"result":1}]"#, Some("answered with"));
        check("- -", true, "", None);
        check("- -", true, "[]", Some("notifications"));
    }

    #[test]
    fn replies_are_well_formed() {
        check("1", false, r#"{"id":1}"#, Some("either"));
        check("1", false, r#"{"id":1,"result":1,"error":{}}"#, Some("either"));
        check("1", false, r#"{"id":1,"result":"#, Some("EOF"));
        check("1", false, r#"{"id":1,"id":1,"result":1}"#, Some("duplicate"));
    }

    #[test]
    fn silence_is_no_answer() {
        let request = request(vec![read("1")]);
        let found = super::check(&evidence(vec![request], Vec::new()));
        assert_eq!(found[0].what, "#0: was never answered");
    }
}
