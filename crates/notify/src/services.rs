//! The requests of the services that are reached by HTTP, as each one documents them.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use driftless_config::{Login, Secret, Target};
use driftless_model::{IncidentKind, IncidentPhase, Notification, Timestamp, Urgency};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{
    Method, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    client::Request,
    error::Error,
    message::{Message, advice, link, phase_name, shorten, shorten_bytes},
    sample::sample,
    sender_host::SenderHost,
};

/// The pause between two repeats of the open alerts. Alertmanager has alerts in memory only: after its restart it knows those
/// that are sent to it again. Prometheus does so every minute or more rarely. Incidents last for hours, so this is often enough.
pub(crate) const REPEAT_ALERTS: Duration = Duration::from_mins(3);

/// Alertmanager ends an alert that is not repeated for this long. Four repeats in a row may be lost, as while the agent or
/// the network is restarted, and the alerts of a host that is gone do not stay for days.
const OPEN_ALERT: Duration = Duration::from_mins(15);

/// The notifications of one message.
pub(crate) struct Batch<'a> {
    pub(crate) notifications: &'a [Notification],
    pub(crate) message: &'a Message,
    pub(crate) host: &'a SenderHost,
    pub(crate) now: Timestamp,
}

impl Batch<'_> {
    /// The same for the same notifications, so that a receiver can recognise a message that comes twice.
    pub(crate) fn id(&self) -> String {
        let ids = self.notifications.iter().map(|notification| {
            let Notification { number, incident, phase, .. } = notification;
            format!("{}.{number}.{}", incident.number, phase_name(*phase))
        });
        let text = format!("{}/{}", self.host.name, ids.collect::<Vec<_>>().join("/"));
        driftless_model::digest_hex(text.as_bytes())[..32].to_owned()
    }
}

/// Reads a secret.
type Read<'a> = &'a dyn Fn(&Secret) -> Result<String, Error>;

/// The request of a service. E-mail has none.
pub(crate) fn request(target: &Target, batch: &Batch<'_>, read: Read<'_>) -> Result<Request, Error> {
    let message = batch.message;
    let Message { title, body, link, urgency, is_recovery } = message;
    match target {
        Target::Slack { url } => {
            // These three characters begin links and mentions.
            let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let escape = |text: &str| without_mentions(&escape(text));
            let text = format!("*{}*\n{}", escape(title), escape(body));
            post(&secret_url(&read(url)?)?, HeaderMap::new(), &json!({ "text": shorten(&text, 4000) }))
        }
        Target::Discord { url } => {
            let mut embed = json!({
                "title": shorten(title, 256),
                "description": shorten(body, 4096),
                "color": colour(*urgency, *is_recovery),
            });
            if let Some(link) = link.as_ref().filter(|link| is_accepted_by_discord(link)) {
                embed["url"] = json!(link);
            }
            let body = json!({ "embeds": [embed], "allowed_mentions": { "parse": [] } });
            post(&secret_url(&read(url)?)?, HeaderMap::new(), &body)
        }
        Target::Teams { url } => post(&secret_url(&read(url)?)?, HeaderMap::new(), &card(message)),
        Target::Telegram { url, token, chat } => telegram(url, token, chat, batch, read),
        Target::Ntfy { url, login } => ntfy(&read(url)?, login, batch, read),
        Target::Gotify { url, token } => gotify(url, token, batch, read),
        Target::Pushover { url, token, user } => pushover(url, token, user, batch, read),
        Target::Matrix { url, token, room } => matrix(url, token, room, batch, read),
        Target::Zulip { url, bot, token, channel, topic } => {
            let login = Login::Basic(bot.clone(), token.clone());
            zulip(url, [channel.as_str(), topic.as_str()], authorization(&login, read)?, message)
        }
        Target::Webhook { url, secret } => webhook(&secret_url(&read(url)?)?, secret.as_ref(), batch, read),
        Target::Alertmanager { url, login } => {
            let alerts: Vec<Value> = batch.notifications.iter().map(|one| alert(one, batch)).collect();
            post(&parse(&format!("{url}/api/v2/alerts"))?, authorization(login, read)?, &json!(alerts))
        }
        Target::Apprise { url, tag, targets } => apprise(url, tag.as_deref(), targets.as_ref(), batch, read),
        Target::Email(_) => Err(Error::Address("e-mail is not sent by HTTP".to_owned())),
    }
}

/// A message of a bot. Its text is plain, so nothing in it is markup.
fn telegram(
    url: &str,
    token: &Secret,
    chat: &str,
    batch: &Batch<'_>,
    read: Read<'_>,
) -> Result<Request, Error> {
    let Message { title, body, urgency, is_recovery, .. } = batch.message;
    let token = read(token)?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b":-_".contains(&byte);
    if !token.bytes().all(is_letter) {
        return Err(Error::Address("the token of the bot has characters that a token has not".to_owned()));
    }
    let body = json!({
        "chat_id": chat,
        "text": shorten(&format!("{title}\n{body}"), 4096),
        "link_preview_options": { "is_disabled": true },
        "disable_notification": *is_recovery || *urgency == Urgency::Info,
    });
    post(&parse(&format!("{url}/bot{token}/sendMessage"))?, HeaderMap::new(), &body)
}

/// A message in the JSON form of ntfy.
fn ntfy(url: &str, login: &Login, batch: &Batch<'_>, read: Read<'_>) -> Result<Request, Error> {
    let Message { title, body, link, urgency, is_recovery } = batch.message;
    let (server, topic) = url
        .trim()
        .trim_end_matches('/')
        .rsplit_once('/')
        .filter(|(server, topic)| !topic.is_empty() && !server.ends_with('/') && !server.ends_with(':'))
        .ok_or_else(|| {
            Error::Address("`url` of ntfy is the server and the topic: https://ntfy.sh/TOPIC".to_owned())
        })?;
    let mut body = json!({
        "topic": topic,
        "title": shorten(title, 250),
        // From 4096 bytes on, a message is an attachment, which not every server takes.
        "message": shorten_bytes(body, 4000),
        "priority": if *is_recovery { 2 } else { level(*urgency, [2, 3, 5]) },
        "tags": [tag(*urgency, *is_recovery)],
    });
    if let Some(link) = link {
        body["click"] = json!(link);
    }
    post(&secret_url(server)?, authorization(login, read)?, &body)
}

/// A message of an application of Gotify.
fn gotify(url: &str, token: &Secret, batch: &Batch<'_>, read: Read<'_>) -> Result<Request, Error> {
    let Message { title, body, link, urgency, is_recovery } = batch.message;
    let headers = secret_header("x-gotify-key", read(token)?)?;
    let mut body = json!({
        "title": title,
        "message": body,
        "priority": if *is_recovery { 2 } else { level(*urgency, [2, 5, 8]) },
    });
    if let Some(link) = link {
        body["extras"] = json!({ "client::notification": { "click": { "url": link } } });
    }
    post(&parse(&format!("{url}/message"))?, headers, &body)
}

/// A message of Pushover.
fn pushover(
    url: &str,
    token: &Secret,
    user: &Secret,
    batch: &Batch<'_>,
    read: Read<'_>,
) -> Result<Request, Error> {
    let Message { title, body, link, urgency, is_recovery } = batch.message;
    let mut body = json!({
        "token": read(token)?,
        "user": read(user)?,
        "title": shorten(title, 250),
        "message": shorten(body, 1024),
        "priority": if *is_recovery { -1 } else { level(*urgency, [-1, 0, 1]) },
    });
    if let Some(link) = link {
        body["url"] = json!(link);
    }
    post(&parse(&format!("{url}/1/messages.json"))?, HeaderMap::new(), &body)
}

/// An event of a room. Its id is the same for the same notifications.
fn matrix(
    url: &str,
    token: &Secret,
    room: &str,
    batch: &Batch<'_>,
    read: Read<'_>,
) -> Result<Request, Error> {
    let Message { title, body, .. } = batch.message;
    let mut address = parse(url)?;
    address
        .path_segments_mut()
        .map_err(|()| Error::Address("`url` of Matrix is https://HOST".to_owned()))?
        .pop_if_empty()
        .extend(["_matrix", "client", "v3", "rooms", room, "send", "m.room.message", &batch.id()]);
    let html = format!("<b>{}</b><br>{}", escape_html(title), escape_html(body).replace('\n', "<br>"));
    let body = json!({
        "msgtype": "m.text",
        "body": shorten(&format!("{title}\n{body}"), 16_000),
        "m.mentions": {},
        "format": "org.matrix.custom.html",
        "formatted_body": shorten(&html, 32_000),
    });
    let headers = authorization(&Login::Token(token.clone()), read)?;
    Ok(Request { method: Method::PUT, ..post(&address, headers, &body)? })
}

/// A message in a channel, under a topic. The text is in a code block, so nothing in it is markup or mentions anybody.
fn zulip(
    url: &str,
    [channel, topic]: [&str; 2],
    mut headers: HeaderMap,
    message: &Message,
) -> Result<Request, Error> {
    let Message { title, body, link, .. } = message;
    let text = shorten(&format!("{title}\n{body}"), 9000);
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let mut content = format!("{fence}text\n{text}\n{fence}");
    if let Some(link) = link {
        content = format!("{content}\n{link}");
    }
    let url = parse(&format!("{url}/api/v1/messages"))?;
    let mut form = url.clone();
    // `stream` is what servers before Zulip 9 call a channel; all later ones take it.
    let fields = [("type", "stream"), ("to", channel), ("topic", topic), ("content", &content)];
    form.query_pairs_mut().clear().extend_pairs(fields);
    let body = form.query().unwrap_or_default().as_bytes().to_vec();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    Ok(Request { method: Method::POST, url, headers, body })
}

/// A notification for an Apprise API server.
fn apprise(
    url: &str,
    tag: Option<&str>,
    targets: Option<&Secret>,
    batch: &Batch<'_>,
    read: Read<'_>,
) -> Result<Request, Error> {
    let Message { title, body, urgency, is_recovery, .. } = batch.message;
    // The answer names each service that got the message, see `answers`.
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert("x-apprise-log-level", HeaderValue::from_static("INFO"));
    let kind = match urgency {
        _ if *is_recovery => "success",
        Urgency::Info => "info",
        Urgency::Warning => "warning",
        Urgency::Critical => "failure",
    };
    let mut body = json!({ "title": title, "body": body, "type": kind, "format": "text" });
    if let Some(tag) = tag {
        body["tag"] = json!(tag);
    }
    if let Some(targets) = targets {
        body["urls"] = json!(read(targets)?);
    }
    let mut address = parse(url)?;
    // The host may have this name, too.
    let has_path =
        address.path_segments().is_some_and(|mut segments| segments.any(|segment| segment == "notify"));
    if !has_path {
        address
            .path_segments_mut()
            .map_err(|()| Error::Address("`url` of Apprise is https://HOST".to_owned()))?
            .pop_if_empty()
            .push("notify");
    }
    post(&address, headers, &body)
}

/// A JSON body with all notifications, signed as Standard Webhooks says.
fn webhook(url: &Url, secret: Option<&Secret>, batch: &Batch<'_>, read: Read<'_>) -> Result<Request, Error> {
    let one = |notification: &Notification| {
        let Notification { incident, phase, at, .. } = notification;
        json!({
            "phase": phase_name(*phase),
            "event": incident.kind.name(),
            "severity": incident.urgency.name(),
            "incident": incident.number,
            "application": incident.app,
            "repository": incident.repository,
            "headline": incident.headline(*phase),
            "message": incident.message,
            "advice": advice(notification),
            "since": incident.since,
            "ended": incident.ended.filter(|_| *phase == IncidentPhase::Recovered),
            "at": at,
            "link": link(incident, batch.host),
        })
    };
    let body = json!({
        "type": "driftless.notification",
        "host": batch.host.name,
        "title": batch.message.title,
        "text": batch.message.body,
        "notifications": batch.notifications.iter().map(one).collect::<Vec<_>>(),
    });
    let id = format!("msg_{}", batch.id());
    let seconds = (batch.now.0 / 1000).to_string();
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", header_value(&id)?);
    headers.insert("webhook-timestamp", header_value(&seconds)?);
    if let Some(secret) = secret {
        let secret = read(secret)?;
        let key = match secret.strip_prefix("whsec_") {
            Some(encoded) => BASE64_STANDARD.decode(encoded).map_err(|_| {
                Error::Address(
                    "the secret of the webhook begins with `whsec_`, but base64 does not follow".to_owned(),
                )
            })?,
            None => secret.into_bytes(),
        };
        let mut mac = Hmac::<Sha256>::new_from_slice(&key)
            .map_err(|_| Error::Address("the secret of the webhook cannot be used".to_owned()))?;
        mac.update(format!("{id}.{seconds}.{body}").as_bytes());
        let signature = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
        headers.insert("webhook-signature", header_value(&signature)?);
    }
    post(url, headers, &body)
}

/// The alert of one incident. The labels stay the same as long as it is open, so that it is one alert.
fn alert(notification: &Notification, batch: &Batch<'_>) -> Value {
    let Notification { incident, phase, .. } = notification;
    let name = match incident.kind {
        IncidentKind::SyncFailed => "DriftlessSyncFailed",
        IncidentKind::Degraded => "DriftlessDegraded",
        IncidentKind::DriftFound => "DriftlessDriftFound",
        IncidentKind::DriftNotHealed => "DriftlessDriftNotHealed",
        IncidentKind::PruneHeld => "DriftlessPruneHeld",
        IncidentKind::RolledBack => "DriftlessRolledBack",
        IncidentKind::GitUnreachable => "DriftlessGitUnreachable",
        IncidentKind::EngineUnreachable => "DriftlessEngineUnreachable",
        IncidentKind::HostLost => "DriftlessHostLost",
        IncidentKind::CredentialExpiring => "DriftlessCredentialExpiring",
        IncidentKind::ImageAvailable => "DriftlessImageAvailable",
        IncidentKind::RecoverRequired => "DriftlessRecoverRequired",
        IncidentKind::ImageCheckFailed => "DriftlessImageCheckFailed",
    };
    // The urgency of an incident may rise; a label may not change.
    let severity = sample(incident.kind, batch.now).urgency.name();
    let mut labels = json!({ "alertname": name, "severity": severity, "instance": batch.host.name });
    if let Some(app) = &incident.app {
        labels["application"] = json!(app);
    }
    if let Some(repository) = &incident.repository {
        labels["repository"] = json!(repository);
    }
    if let Some(host) = &incident.host {
        labels["host"] = json!(host);
    }
    let ends = match phase {
        IncidentPhase::Recovered => incident.ended.unwrap_or(batch.now),
        IncidentPhase::Opened | IncidentPhase::Updated => batch.now.after(OPEN_ALERT),
    };
    let mut alert = json!({
        "labels": labels,
        "annotations": {
            "summary": format!("[{}] {}", batch.host.name, incident.headline(IncidentPhase::Opened)),
            "description": format!("{}. To do: {}", incident.message, incident.advice),
        },
        // Alertmanager refuses an alert that begins after its end, as when the clock was set back.
        "startsAt": incident.since.min(batch.now).min(ends),
        "endsAt": ends,
    });
    if let Some(link) = link(incident, batch.host) {
        alert["generatorURL"] = json!(link);
    }
    alert
}

/// A message of Teams with an adaptive card.
fn card(message: &Message) -> Value {
    let Message { title, body, link, urgency, is_recovery } = message;
    let colour = match urgency {
        _ if *is_recovery => "Good",
        Urgency::Info => "Default",
        Urgency::Warning => "Warning",
        Urgency::Critical => "Attention",
    };
    let block = |text: &str| json!({ "type": "TextBlock", "text": text, "wrap": true });
    let mut heading = block(title);
    heading["weight"] = json!("Bolder");
    heading["size"] = json!("Medium");
    heading["color"] = json!(colour);
    // A single line break is none in a card.
    let mut content = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [heading, block(&shorten(body, 10_000).replace('\n', "\n\n"))],
    });
    if let Some(link) = link {
        content["actions"] = json!([{ "type": "Action.OpenUrl", "title": "Open", "url": link }]);
    }
    let attachment = json!({ "contentType": "application/vnd.microsoft.card.adaptive", "content": content });
    json!({ "type": "message", "attachments": [attachment] })
}

#[expect(clippy::unnecessary_wraps, reason = "it is the last call of functions that may fail")]
fn post(url: &Url, mut headers: HeaderMap, body: &Value) -> Result<Request, Error> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Request { method: Method::POST, url: url.clone(), headers, body: body.to_string().into_bytes() })
}

fn authorization(login: &Login, read: Read<'_>) -> Result<HeaderMap, Error> {
    match login {
        Login::Open => Ok(HeaderMap::new()),
        Login::Token(token) => secret_header(AUTHORIZATION.as_str(), format!("Bearer {}", read(token)?)),
        Login::Basic(user, password) => {
            let pair = BASE64_STANDARD.encode(format!("{user}:{}", read(password)?));
            secret_header(AUTHORIZATION.as_str(), format!("Basic {pair}"))
        }
    }
}

fn secret_header(name: &'static str, value: String) -> Result<HeaderMap, Error> {
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| Error::Address("the token has characters that a header cannot carry".to_owned()))?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(HeaderName::from_static(name), value)]))
}

fn header_value(text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text).map_err(|_| Error::Address("a header has unprintable characters".to_owned()))
}

fn parse(url: &str) -> Result<Url, Error> {
    Url::parse(url).map_err(|_| Error::Address("the URL cannot be read".to_owned()))
}

/// A URL that is secret: no error repeats it.
fn secret_url(text: &str) -> Result<Url, Error> {
    let wrong = || Error::Address("the secret URL is written as https://HOST/PATH".to_owned());
    let url = Url::parse(text.trim()).map_err(|_| wrong())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(wrong()) }
}

/// Discord refuses a message with a URL whose host is a name without a dot, such as `http://nas:8484`.
fn is_accepted_by_discord(link: &str) -> bool {
    // An IP address is no domain.
    Url::parse(link).is_ok_and(|url| url.domain().is_none_or(|name| name.trim_end_matches('.').contains('.')))
}

fn level(urgency: Urgency, levels: [i32; 3]) -> i32 {
    match urgency {
        Urgency::Info => levels[0],
        Urgency::Warning => levels[1],
        Urgency::Critical => levels[2],
    }
}

fn tag(urgency: Urgency, is_recovery: bool) -> &'static str {
    match urgency {
        _ if is_recovery => "white_check_mark",
        Urgency::Info => "information_source",
        Urgency::Warning => "warning",
        Urgency::Critical => "rotating_light",
    }
}

fn colour(urgency: Urgency, is_recovery: bool) -> u32 {
    match urgency {
        _ if is_recovery => 0x2e_7d32,
        Urgency::Info => 0x15_65c0,
        Urgency::Warning => 0xef_6c00,
        Urgency::Critical => 0xc6_2828,
    }
}

/// Mattermost, which takes messages for Slack, calls everybody for a word such as `@all`: a space without width follows an `@` that
/// begins a word. That in an image with a digest stays as it is.
fn without_mentions(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        let begins_word = !out.ends_with(char::is_alphanumeric);
        out.push(letter);
        if letter == '@' && begins_word {
            out.push('\u{200b}');
        }
    }
    out
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn at_sign_in_a_word_mentions_nobody() {
        let text = without_mentions("@all (@here) web@sha256:0a a@b.c");
        assert_eq!(text, "@\u{200b}all (@\u{200b}here) web@sha256:0a a@b.c");
    }

    use super::*;

    /// A message without text.
    fn message_with(link: Option<&str>) -> Message {
        Message {
            title: String::new(),
            body: String::new(),
            link: link.map(str::to_owned),
            urgency: Urgency::Warning,
            is_recovery: false,
        }
    }

    #[test]
    fn discord_gets_no_link_to_a_host_without_a_dot() {
        let target = Target::Discord { url: Secret::Environment("URL".to_owned()) };
        let host = SenderHost { name: "nas".to_owned(), url: None };
        for (link, is_sent) in [
            ("http://nas:8484/", false),
            ("http://localhost./applications/shop", false),
            ("http://192.168.1.5:8484/", true),
            ("https://driftless.example.com/applications/shop", true),
        ] {
            let message = message_with(Some(link));
            let batch = Batch { notifications: &[], message: &message, host: &host, now: Timestamp(0) };
            let read = |_: &Secret| Ok("https://discord.com/api/webhooks/1/secret".to_owned());
            let request = request(&target, &batch, &read).unwrap();
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(body["embeds"][0].get("url").is_some(), is_sent, "{link}");
        }
    }

    #[test]
    fn host_of_apprise_may_be_called_notify() {
        let host = SenderHost { name: "nas".to_owned(), url: None };
        let message = message_with(None);
        let batch = Batch { notifications: &[], message: &message, host: &host, now: Timestamp(0) };
        for (url, expected) in [
            ("https://notify.example.com", "https://notify.example.com/notify"),
            ("http://notify:8000/apprise", "http://notify:8000/apprise/notify"),
            ("http://apprise:8000/notify/home", "http://apprise:8000/notify/home"),
        ] {
            let target = Target::Apprise { url: url.to_owned(), tag: None, targets: None };
            let request = request(&target, &batch, &|_| Ok(String::new())).unwrap();
            assert_eq!(request.url.as_str(), expected);
        }
    }

    #[test]
    fn recovery_has_no_advice_in_json() {
        let now = Timestamp(1_767_225_600_000);
        let host = SenderHost { name: "nas".to_owned(), url: None };
        let message = message_with(None);
        let target = Target::Webhook { url: Secret::Environment("URL".to_owned()), secret: None };
        for (phase, has_advice) in [(IncidentPhase::Opened, true), (IncidentPhase::Recovered, false)] {
            let incident = sample(IncidentKind::Degraded, now);
            let receiver = "it".to_owned();
            let notifications = [Notification { number: 1, receiver, phase, incident, at: now, sent: None }];
            let batch = Batch { notifications: &notifications, message: &message, host: &host, now };
            let request = request(&target, &batch, &|_| Ok("https://example.com".to_owned())).unwrap();
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let said = body["notifications"][0]["advice"].as_str().unwrap();
            assert_eq!(!said.is_empty(), has_advice, "{phase:?}");
        }
    }

    #[test]
    fn alert_does_not_begin_after_its_end() {
        let now = Timestamp(1_767_225_600_000);
        let host = SenderHost { name: "nas".to_owned(), url: None };
        let message = message_with(None);
        let batch = Batch { notifications: &[], message: &message, host: &host, now };
        // The clock was set back by an hour.
        let incident = sample(IncidentKind::Degraded, now.after(Duration::from_hours(1)));
        let receiver = "it".to_owned();
        let phase = IncidentPhase::Opened;
        let notification = Notification { number: 1, receiver, phase, incident, at: now, sent: None };
        let alert = alert(&notification, &batch);
        assert_eq!(alert["startsAt"], json!(now));
        assert_eq!(alert["endsAt"], json!(now.after(OPEN_ALERT)));
    }
}
