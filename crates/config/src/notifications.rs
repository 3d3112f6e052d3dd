//! Notifications: receivers, routes and their rules. Secrets stay names of files and variables.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use driftless_model::{IncidentKind, QuietHours, Urgency};

use crate::{
    keys,
    secret::Secret,
    value::{Fields as _, Object, Value},
};

/// Notifications about incidents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notifications {
    /// The URL of the agent's page as people see it, for links. Without a slash at the end.
    pub url: Option<String>,
    /// The name of this host in messages. Default: `host.name`.
    pub host: Option<String>,
    /// An application is degraded for this long before it is reported. Default: 5 min.
    pub degraded_after: Duration,
    /// A repository was not fetched for this long before it is reported. Default: 15 min.
    pub git_unreachable_after: Duration,
    /// The shortest time between two notifications of one incident. Default: 1 h.
    pub update_interval: Duration,
    /// The receivers.
    pub receivers: Vec<NotificationReceiver>,
    /// The routes. Default: one that leads to all receivers, from warnings on.
    pub routes: Vec<NotificationRoute>,
}

/// A place that notifications are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationReceiver {
    /// Unique.
    pub name: String,
    /// The service.
    pub target: Target,
    /// A PEM file of additional certificate authorities.
    pub ca_file: Option<PathBuf>,
    /// The template of the title, in `MiniJinja`.
    pub title: Option<String>,
    /// The template of the text, in `MiniJinja`.
    pub body: Option<String>,
    /// Times at which only critical incidents are sent; the others wait and come as one message.
    pub quiet_hours: Option<QuietHours>,
    /// All but critical incidents are collected for this long and come as one message.
    pub digest: Option<Duration>,
    /// Maximum number of messages in an hour; the others wait and come as one message. Default: 20.
    pub rate_limit: usize,
}

/// A service with what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An incoming webhook of Slack or Mattermost.
    Slack {
        /// The URL, which is secret.
        url: Secret,
    },
    /// A webhook of Discord.
    Discord {
        /// The URL, which is secret.
        url: Secret,
    },
    /// A workflow of Microsoft Teams that takes adaptive cards.
    Teams {
        /// The URL, which is secret.
        url: Secret,
    },
    /// A bot of Telegram.
    Telegram {
        /// Default: `https://api.telegram.org`.
        url: String,
        /// The bot's token.
        token: Secret,
        /// The id of the chat, or `@channel`.
        chat: String,
    },
    /// A topic of ntfy.
    Ntfy {
        /// The server and the topic, which may be secret: who knows it reads and writes there.
        url: Secret,
        /// The access.
        login: Login,
    },
    /// An application of Gotify.
    Gotify {
        /// The server.
        url: String,
        /// The application's token.
        token: Secret,
    },
    /// Pushover.
    Pushover {
        /// Default: `https://api.pushover.net`.
        url: String,
        /// The application's token.
        token: Secret,
        /// The key of the user or group.
        user: Secret,
    },
    /// A room of Matrix.
    Matrix {
        /// The home server.
        url: String,
        /// The access token.
        token: Secret,
        /// The id of the room, `!…:server`.
        room: String,
    },
    /// A channel of Zulip.
    Zulip {
        /// The server.
        url: String,
        /// The e-mail address of the bot.
        bot: String,
        /// The bot's API key.
        token: Secret,
        /// The name of the channel.
        channel: String,
        /// Default: `driftless`.
        topic: String,
    },
    /// E-mail by SMTP.
    Email(Email),
    /// Any URL, with a signature of Standard Webhooks if there is a secret.
    Webhook {
        /// The URL, which may be secret.
        url: Secret,
        /// The secret that signs.
        secret: Option<Secret>,
    },
    /// The Alertmanager of Prometheus.
    Alertmanager {
        /// The server.
        url: String,
        /// The access.
        login: Login,
    },
    /// An Apprise API server.
    Apprise {
        /// The server, with `/notify/KEY` for a stored configuration.
        url: String,
        /// The tag of a stored configuration.
        tag: Option<String>,
        /// The URLs of the services for a server without a stored configuration, one per line or separated by commas. They are secret.
        targets: Option<Secret>,
    },
}

/// The access to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// None is needed.
    Open,
    /// A token, as `Bearer`.
    Token(Secret),
    /// HTTP Basic.
    Basic(String, Secret),
}

/// E-mail by SMTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email {
    /// The server's name.
    pub server: String,
    /// Default: 587 with STARTTLS, 465 with TLS, 25 without.
    pub port: u16,
    /// Default: STARTTLS.
    pub tls: MailTls,
    /// User and password.
    pub login: Option<(String, Secret)>,
    /// The sender.
    pub from: String,
    /// The recipients.
    pub to: Vec<String>,
}

/// The encryption of the connection to a mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// The server must offer STARTTLS.
    StartTls,
    /// TLS from the beginning.
    Tls,
    /// None. Only for a server on this machine.
    Off,
}

/// A rule which incidents a receiver gets. An empty list means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotificationRoute {
    /// The names of the receivers.
    pub receivers: Vec<String>,
    /// Names of applications; `*` is any run of letters.
    pub applications: Vec<String>,
    /// Names of repositories; `*` is any run of letters.
    pub repositories: Vec<String>,
    /// The lowest urgency. Default: warning.
    pub severity: Urgency,
    /// The kinds of incidents.
    pub events: Vec<IncidentKind>,
}

impl Default for Notifications {
    fn default() -> Self {
        Self {
            url: None,
            host: None,
            degraded_after: Duration::from_mins(5),
            git_unreachable_after: Duration::from_mins(15),
            update_interval: Duration::from_hours(1),
            receivers: Vec::new(),
            routes: Vec::new(),
        }
    }
}

impl Target {
    /// The name of the service in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Slack { .. } => "slack",
            Self::Discord { .. } => "discord",
            Self::Teams { .. } => "teams",
            Self::Telegram { .. } => "telegram",
            Self::Ntfy { .. } => "ntfy",
            Self::Gotify { .. } => "gotify",
            Self::Pushover { .. } => "pushover",
            Self::Matrix { .. } => "matrix",
            Self::Zulip { .. } => "zulip",
            Self::Email(_) => "email",
            Self::Webhook { .. } => "webhook",
            Self::Alertmanager { .. } => "alertmanager",
            Self::Apprise { .. } => "apprise",
        }
    }
}

/// The type of a receiver, of which [`target`] makes a [`Target`].
#[derive(Clone, Copy)]
enum ReceiverType {
    Slack,
    Discord,
    Teams,
    Telegram,
    Ntfy,
    Gotify,
    Pushover,
    Matrix,
    Zulip,
    Email,
    Webhook,
    Alertmanager,
    Apprise,
}

/// The types of receivers: the name of each in the configuration, and the keys that it has besides those of all receivers.
const TYPES: [(&str, ReceiverType, &[&str]); 13] = [
    ("slack", ReceiverType::Slack, &["urlEnv", "urlFile"]),
    ("discord", ReceiverType::Discord, &["urlEnv", "urlFile"]),
    ("teams", ReceiverType::Teams, &["urlEnv", "urlFile"]),
    ("telegram", ReceiverType::Telegram, &["url", "tokenEnv", "tokenFile", "chat"]),
    (
        "ntfy",
        ReceiverType::Ntfy,
        &["url", "urlEnv", "urlFile", "tokenEnv", "tokenFile", "username", "passwordEnv", "passwordFile"],
    ),
    ("gotify", ReceiverType::Gotify, &["url", "tokenEnv", "tokenFile"]),
    ("pushover", ReceiverType::Pushover, &["url", "tokenEnv", "tokenFile", "userEnv", "userFile"]),
    ("matrix", ReceiverType::Matrix, &["url", "tokenEnv", "tokenFile", "room"]),
    ("zulip", ReceiverType::Zulip, &["url", "username", "tokenEnv", "tokenFile", "channel", "topic"]),
    (
        "email",
        ReceiverType::Email,
        &["server", "port", "tls", "username", "passwordEnv", "passwordFile", "from", "to"],
    ),
    ("webhook", ReceiverType::Webhook, &["url", "urlEnv", "urlFile", "secretEnv", "secretFile"]),
    (
        "alertmanager",
        ReceiverType::Alertmanager,
        &["url", "tokenEnv", "tokenFile", "username", "passwordEnv", "passwordFile"],
    ),
    ("apprise", ReceiverType::Apprise, &["url", "tag", "urlsEnv", "urlsFile"]),
];

/// The names of all services.
#[cfg(test)]
pub(super) fn types() -> Vec<&'static str> {
    TYPES.iter().map(|(word, _, _)| *word).collect()
}

/// Reads the value of `notifications`. Mistakes are reported.
pub(super) fn notifications(value: Value<'_>) -> Option<Notifications> {
    let object = value.object(&keys::NOTIFICATIONS)?;
    let defaults = Notifications::default();
    let mut names = BTreeSet::new();
    let mut receivers = Vec::new();
    for item in object.items("receivers") {
        receivers.extend(receiver(item, &mut names));
    }
    let routes = object.items("routes").into_iter().filter_map(|item| route(item, &names)).collect();
    Some(Notifications {
        url: object.parsed("url", http_url),
        host: object.owned("host"),
        degraded_after: object.duration("degradedAfter").unwrap_or(defaults.degraded_after),
        git_unreachable_after: object
            .duration("gitUnreachableAfter")
            .unwrap_or(defaults.git_unreachable_after),
        update_interval: object.duration("updateInterval").unwrap_or(defaults.update_interval),
        receivers,
        routes,
    })
}

fn route(value: Value<'_>, known: &BTreeSet<String>) -> Option<NotificationRoute> {
    let object = value.object(&keys::NOTIFICATION_ROUTE)?;
    let value = &object.value;
    object.require("receivers");
    let receivers = object.strings("receivers");
    for name in receivers.iter().filter(|name| !known.contains(*name)) {
        value.error(format!("there is no receiver `{name}` under `notifications.receivers`"));
    }
    let mut events = Vec::new();
    for item in object.items("events") {
        let Some(text) = item.string() else { continue };
        if let Some((_, kind)) = IncidentKind::ALL.iter().find(|(name, _)| *name == text) {
            events.push(*kind);
        } else {
            let names: Vec<&str> = IncidentKind::ALL.iter().map(|(name, _)| *name).collect();
            item.error(format!("`{text}` is no event: write some of {}", names.join(", ")));
        }
    }
    Some(NotificationRoute {
        receivers,
        applications: object.strings("applications"),
        repositories: object.strings("repositories"),
        severity: object.word("severity", &Urgency::ALL).unwrap_or(Urgency::Warning),
        events,
    })
}

fn receiver(value: Value<'_>, names: &mut BTreeSet<String>) -> Option<NotificationReceiver> {
    let object = value.object(&keys::RECEIVER)?;
    let value = &object.value;
    object.require("name");
    object.require("type");
    let name = object.parsed("name", receiver_name).unwrap_or_default();
    let words = TYPES.map(|known| (known.0, known));
    let (word, kind, allowed) = object.word("type", &words)?;
    let of_services: BTreeSet<&str> = TYPES.iter().flat_map(|(_, _, keys)| keys.iter().copied()).collect();
    for key in of_services.into_iter().filter(|key| !allowed.contains(key)) {
        if let Some(value) = object.get(key) {
            value.error(format!(
                "a receiver of the type `{word}` has no `{key}`: it has {}",
                allowed.join(", ")
            ));
        }
    }
    if !name.is_empty() && !names.insert(name.clone()) {
        value.error(format!("there is another receiver `{name}`: give each a `name` of its own"));
    }
    let target = target(kind, word, &object, value)?;
    Some(NotificationReceiver {
        name,
        target,
        ca_file: object.absolute("caFile"),
        title: object.owned("title"),
        body: object.owned("body"),
        quiet_hours: object.get("quietHours").and_then(quiet_hours),
        digest: object.duration("digest"),
        rate_limit: object
            .parsed("rateLimit", |text| match text.parse() {
                Ok(count @ 1..=1000_usize) => Ok(count),
                Ok(_) | Err(_) => {
                    Err("must be a whole number from 1 to 1000, in messages per hour".to_owned())
                }
            })
            .unwrap_or(20),
    })
}

fn target(kind: ReceiverType, word: &str, object: &Object<'_>, place: &Value<'_>) -> Option<Target> {
    let need = |what: &str, found: Option<Secret>| {
        if found.is_none() {
            place.error(format!("a receiver of the type `{word}` needs `{what}Env` or `{what}File`"));
        }
        found
    };
    let url = |default: Option<&str>| {
        let given = object.parsed("url", http_url);
        let found = given.or_else(|| default.map(str::to_owned));
        if found.is_none() {
            place.error(format!("a receiver of the type `{word}` needs `url`"));
        }
        found
    };
    // Either a plain one or a secret one.
    let any_url = || {
        let plain = object.parsed("url", http_url).map(Secret::Plain);
        let hidden = secret(object, place, "url");
        if plain.is_some() && hidden.is_some() {
            place.error("`url`, `urlEnv` and `urlFile` exclude each other: give one of them");
        }
        let found = plain.or(hidden);
        if found.is_none() {
            place.error(format!("a receiver of the type `{word}` needs `url`, `urlEnv` or `urlFile`"));
        }
        found
    };
    let text = |key: &str| {
        let found = object.owned(key).filter(|text| !text.is_empty());
        if found.is_none() {
            place.error(format!("a receiver of the type `{word}` needs `{key}`"));
        }
        found
    };
    Some(match kind {
        ReceiverType::Slack => Target::Slack { url: need("url", secret(object, place, "url"))? },
        ReceiverType::Discord => Target::Discord { url: need("url", secret(object, place, "url"))? },
        ReceiverType::Teams => Target::Teams { url: need("url", secret(object, place, "url"))? },
        ReceiverType::Telegram => Target::Telegram {
            url: url(Some("https://api.telegram.org"))?,
            token: need("token", secret(object, place, "token"))?,
            chat: text("chat")?,
        },
        ReceiverType::Ntfy => Target::Ntfy { url: any_url()?, login: login(object, place)? },
        ReceiverType::Gotify => {
            Target::Gotify { url: url(None)?, token: need("token", secret(object, place, "token"))? }
        }
        ReceiverType::Pushover => Target::Pushover {
            url: url(Some("https://api.pushover.net"))?,
            token: need("token", secret(object, place, "token"))?,
            user: need("user", secret(object, place, "user"))?,
        },
        ReceiverType::Matrix => Target::Matrix {
            url: url(None)?,
            token: need("token", secret(object, place, "token"))?,
            room: text("room")?,
        },
        ReceiverType::Zulip => Target::Zulip {
            url: url(None)?,
            bot: text("username")?,
            token: need("token", secret(object, place, "token"))?,
            channel: text("channel")?,
            topic: object.owned("topic").unwrap_or_else(|| "driftless".to_owned()),
        },
        ReceiverType::Email => Target::Email(email(object, place, &text)?),
        ReceiverType::Webhook => Target::Webhook { url: any_url()?, secret: secret(object, place, "secret") },
        ReceiverType::Alertmanager => Target::Alertmanager { url: url(None)?, login: login(object, place)? },
        ReceiverType::Apprise => Target::Apprise {
            url: url(None)?,
            tag: object.owned("tag"),
            targets: secret(object, place, "urls"),
        },
    })
}

/// The secret of `NAMEEnv` or `NAMEFile`.
fn secret(object: &Object<'_>, place: &Value<'_>, name: &str) -> Option<Secret> {
    let (variable, file) = (format!("{name}Env"), format!("{name}File"));
    match (object.owned(&variable), object.absolute(&file)) {
        (Some(_), Some(_)) => {
            place.error(format!("`{variable}` and `{file}` exclude each other: give one of them"));
            None
        }
        (Some(name), None) => Some(Secret::Environment(name)),
        (None, Some(path)) => Some(Secret::File(path)),
        (None, None) => None,
    }
}

fn login(object: &Object<'_>, place: &Value<'_>) -> Option<Login> {
    let token = secret(object, place, "token");
    let password = secret(object, place, "password");
    match (token, object.owned("username"), password) {
        (None, None, None) => Some(Login::Open),
        (Some(token), None, None) => Some(Login::Token(token)),
        (None, Some(user), Some(password)) if !user.contains(':') => Some(Login::Basic(user, password)),
        _ => {
            place.error("give a token, or `username` with `passwordEnv` or `passwordFile`, or none of them");
            None
        }
    }
}

fn email(object: &Object<'_>, place: &Value<'_>, text: &dyn Fn(&str) -> Option<String>) -> Option<Email> {
    let words = [("starttls", MailTls::StartTls), ("tls", MailTls::Tls), ("none", MailTls::Off)];
    let tls = object.word("tls", &words).unwrap_or(MailTls::StartTls);
    let default_port = match tls {
        MailTls::StartTls => 587,
        MailTls::Tls => 465,
        MailTls::Off => 25,
    };
    let port = object.parsed("port", |text| match text.parse() {
        Ok(port @ 1..=u16::MAX) => Ok(port),
        Ok(_) | Err(_) => Err("must be a port, such as 587".to_owned()),
    });
    let password = secret(object, place, "password");
    let login = match (object.owned("username"), password) {
        (None, None) => None,
        (Some(user), Some(password)) => Some((user, password)),
        (Some(_), None) | (None, Some(_)) => {
            place.error("`username` needs `passwordEnv` or `passwordFile`, and they need `username`");
            return None;
        }
    };
    let server = text("server")?;
    if tls == MailTls::Off && login.is_some() && !is_this_machine(&server) {
        place.error("without `tls` the password would cross the network in clear");
    }
    let to = object.strings("to");
    if to.is_empty() {
        place.error("a receiver of the type `email` needs `to`, a list of addresses");
    }
    Some(Email { server, port: port.unwrap_or(default_port), tls, login, from: text("from")?, to })
}

fn is_this_machine(server: &str) -> bool {
    server == "localhost" || server.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

fn quiet_hours(value: Value<'_>) -> Option<QuietHours> {
    let object = value.object(&keys::QUIET_HOURS)?;
    object.require("from");
    object.require("to");
    let (from, to) = (object.owned("from")?, object.owned("to")?);
    let hours = QuietHours::parse(&from, &to, object.owned("timeZone").as_deref());
    hours.map_err(|message| object.value.error(message)).ok()
}

fn receiver_name(text: &str) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if (1..=63).contains(&text.len()) && text.bytes().all(is_letter) {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 63 letters, digits, `.`, `-` and `_`".to_owned())
    }
}

/// A URL without credentials.
fn http_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if host.is_empty() || text.contains(char::is_whitespace) {
        return Err("a URL is written as `https://host/path`".to_owned());
    }
    if host.contains('@') {
        return Err("the URL contains a credential: give it in a file or an environment variable".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}
