//! The meaning of the answers of the services that are reached by HTTP.

use driftless_config::Target;
use serde_json::Value;

use crate::{
    client::Answer,
    error::{Error, Refusal},
    recipient::RefusedRecipient,
};

/// Whether a service has accepted a message. Returns the recipients that did not get it, while others did.
pub(crate) fn outcome(target: &Target, answer: &Answer) -> Result<Vec<RefusedRecipient>, Error> {
    match target {
        Target::Apprise { .. } => apprise(answer),
        Target::Slack { .. }
        | Target::Discord { .. }
        | Target::Teams { .. }
        | Target::Telegram { .. }
        | Target::Ntfy { .. }
        | Target::Gotify { .. }
        | Target::Pushover { .. }
        | Target::Matrix { .. }
        | Target::Zulip { .. }
        | Target::Email(_)
        | Target::Webhook { .. }
        | Target::Alertmanager { .. } => by_status(answer),
    }
}

/// The meaning of the statuses of HTTP, for a service with one recipient.
fn by_status(answer: &Answer) -> Result<Vec<RefusedRecipient>, Error> {
    if answer.status.is_success() {
        return Ok(Vec::new());
    }
    let refusal = match answer.status.as_u16() {
        400 | 413 | 422 => Refusal::Content,
        408 | 425 | 429 | 500..=599 => Refusal::TryAgain,
        _ => Refusal::All,
    };
    let message = answer.redirection().unwrap_or_else(|| answer.explanation(&answer.body));
    Err(refused(answer, refusal, message))
}

/// The meaning of an answer of an Apprise API server, which passes the message on to services. It answers 204 if it knows no
/// service, and 424 if at least one has failed. The others have got the message then, if the log in the answer says so. `Sender`
/// asks for a second answer that does, because the log can have entries about messages of other clients.
fn apprise(answer: &Answer) -> Result<Vec<RefusedRecipient>, Error> {
    match answer.status.as_u16() {
        204 => {
            let message =
                "it has no configuration under the key of `url`, or cannot use the URLs of the services";
            Err(refused(answer, Refusal::All, message.to_owned()))
        }
        424 => {
            let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let details = json["details"].as_array().into_iter().flatten();
            let entries: Vec<(&str, &str)> = details.filter_map(level_and_text).collect();
            let is_sent = entries.iter().any(|(level, text)| *level == "INFO" && says_sent(text));
            // Errors are left out: they can repeat the URL of a service, with its password.
            let warnings = entries.iter().filter(|(level, _)| *level == "WARNING").map(|(_, text)| *text);
            let warnings = warnings.collect::<Vec<_>>().join("; ");
            let message = match json["error"].as_str() {
                _ if !warnings.is_empty() => answer.explanation(warnings.as_bytes()),
                Some(error) => answer.explanation(error.as_bytes()),
                None => answer.explanation(&answer.body),
            };
            let error = refused(answer, Refusal::All, message);
            if is_sent {
                Ok(vec![RefusedRecipient { recipient: "a service of Apprise".to_owned(), error }])
            } else {
                Err(error)
            }
        }
        _ => by_status(answer),
    }
}

/// Whether an entry of the log of Apprise says that a service has got a message. Plivo's begins with `Send`, and those of Lark, QQ,
/// Spike and `SpugPush` end so.
fn says_sent(text: &str) -> bool {
    text.starts_with("Sent ") || text.starts_with("Send ") || text.ends_with(" sent successfully.")
}

/// An entry of the log of Apprise: level, time and text.
fn level_and_text(entry: &Value) -> Option<(&str, &str)> {
    Some((entry[0].as_str()?, entry[2].as_str()?))
}

fn refused(answer: &Answer, refusal: Refusal, message: String) -> Error {
    let host = answer.url.host_str().unwrap_or_default().to_owned();
    Error::Refused { host, status: answer.status.as_u16(), message, refusal }
}

#[cfg(test)]
mod tests {
    use driftless_config::Secret;
    use reqwest::{StatusCode, Url};
    use serde_json::json;

    use super::*;

    fn apprise_answers(status: StatusCode, body: &str) -> Result<Vec<RefusedRecipient>, Error> {
        let url = "http://apprise:8000/notify/home";
        let target = Target::Apprise { url: url.to_owned(), tag: None, targets: None };
        outcome(&target, &answer(url, status, body))
    }

    fn answer(url: &str, status: StatusCode, body: &str) -> Answer {
        Answer { url: Url::parse(url).unwrap(), status, location: None, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn redirect_names_the_new_host() {
        let target = Target::Webhook { url: Secret::Plain(String::new()), secret: None };
        for (location, host) in
            [("https://push.lan/hook/s3cret", "https://push.lan"), ("/s3cret", "http://push.lan:81")]
        {
            let mut answer =
                answer("http://push.lan:81/hook/s3cret", StatusCode::PERMANENT_REDIRECT, "moved");
            answer.location = Some(location.to_owned());
            let error = outcome(&target, &answer).unwrap_err().to_string();
            assert!(
                error.contains(&format!("it redirects to {host}, and")) && !error.contains("s3cret"),
                "{error}"
            );
        }
    }

    const FAILED: [&str; 3] = ["WARNING", "2026-01-01 12:00:01,000", "Failed to send Email."];

    #[test]
    fn message_that_apprise_sent_to_others_is_delivered() {
        for sent in [
            "Sent Telegram notification.",
            "Lark notification sent successfully.",
            "Send 1 Plivo notification to +49123",
        ] {
            let body = json!({
                "error": "One or more notification could not be sent",
                "details": [["INFO", "2026-01-01 12:00:00,000", sent], FAILED],
            });
            let refused = apprise_answers(StatusCode::FAILED_DEPENDENCY, &body.to_string()).unwrap();
            assert_eq!(refused.len(), 1);
            let text = refused[0].to_string();
            assert_eq!(
                text,
                "a service of Apprise did not get the message, others did: apprise answers 424: Failed to send Email."
            );
        }
    }

    #[test]
    fn message_that_apprise_sent_to_nobody_is_refused() {
        let failed = json!({ "error": "not sent", "details": [FAILED] }).to_string();
        let hidden =
            json!({ "error": "not sent", "details": [["ERROR", "", "bad mailto://a:secret@b"]] }).to_string();
        for (status, body, expected) in [
            (StatusCode::FAILED_DEPENDENCY, failed.as_str(), "424: Failed to send Email."),
            (StatusCode::FAILED_DEPENDENCY, hidden.as_str(), "424: not sent"),
            (StatusCode::FAILED_DEPENDENCY, "no JSON", "424: no JSON"),
            (StatusCode::NO_CONTENT, "", "204: it has no configuration under the key"),
        ] {
            let error = apprise_answers(status, body).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!error.is_temporary() && !error.is_about_message(), "{error}");
        }
        assert!(apprise_answers(StatusCode::OK, "").unwrap().is_empty());
    }

    #[test]
    fn status_of_a_service_says_whether_another_try_helps() {
        let url = "https://gotify.example.com";
        let target = Target::Gotify { url: url.to_owned(), token: Secret::Environment("TOKEN".to_owned()) };
        let answers = |code: u16| {
            let status = StatusCode::from_u16(code).unwrap();
            outcome(&target, &answer(url, status, ""))
        };
        assert!(answers(204).unwrap().is_empty());
        for (code, is_about_content, is_temporary) in [
            (400, true, false),
            (422, true, false),
            (429, false, true),
            (503, false, true),
            (401, false, false),
        ] {
            let error = answers(code).unwrap_err();
            assert_eq!(
                (error.is_about_content(), error.is_temporary()),
                (is_about_content, is_temporary),
                "{error}"
            );
        }
    }

    #[test]
    fn url_that_an_answer_repeats_is_hidden() {
        for (path, body, expected) in [
            ("webhook/7f0c2d91", "Cannot POST /webhook/7f0c2d91", "Cannot POST /webhook/••••"),
            (
                "webhook/7f0c2d91-4be2/on",
                r#"{"message": "The webhook \"POST 7f0c2d91-4be2/on\" is not registered."}"#,
                r#"{"message": "The webhook \"POST ••••/on\" is not registered."}"#,
            ),
            ("hook?key=x9/+y%202", "no /hook?key=x9/+y%202 nor x9/ y 2", "no /hook?key=•••• nor ••••"),
            ("api/v2/message", "no API v2 for a message", "no API v2 for a message"),
        ] {
            let answer = answer(&format!("https://hooks.lan/{path}"), StatusCode::NOT_FOUND, body);
            assert_eq!(answer.explanation(&answer.body), expected);
            let error = by_status(&answer).unwrap_err().to_string();
            assert_eq!(error, format!("hooks.lan answers 404: {expected}"));
        }
        let long = format!("{}{}", "x ".repeat(94), "/webhook/7f0c2d91");
        let error = by_status(&answer("https://hooks.lan/webhook/7f0c2d91", StatusCode::NOT_FOUND, &long));
        assert!(!error.unwrap_err().to_string().contains("7f"), "it is hidden before it is cut");
    }
}
