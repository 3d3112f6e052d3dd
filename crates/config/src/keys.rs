//! The table of all keys of the configuration file. The reader checks the keys of a file against it, and `schema.rs` makes
//! the JSON schema from it.

use Shape::{
    Address, Boolean, Duration, File, Integer, List, ListOf, Mapping, Object, OneOrMore, Path, Paths,
    Strings, Text, TextOr, Word,
};
use driftless_yaml::{Keys, Support};

/// The keys of one map.
#[derive(Debug)]
pub(super) struct Table {
    keys: &'static [&'static [Key]],
    pub(super) required: &'static [&'static str],
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// One sentence without a full stop.
    pub(super) about: &'static str,
}

/// The values that a key takes.
#[derive(Debug)]
pub(super) enum Shape {
    Text,
    /// An absolute path.
    Path,
    /// The absolute path of a file that the agent reads.
    File,
    /// `host:port`.
    Address,
    /// A number with a unit: `90s`, `1h30m`.
    Duration,
    Boolean,
    /// A text or a map, or a list of these.
    OneOrMore(&'static Table),
    /// A text, or a map.
    TextOr(&'static Table),
    /// From 0 to this number.
    Integer(u32),
    /// One of these.
    Word(&'static [&'static str]),
    Strings,
    Paths,
    /// Names and values.
    Mapping,
    Object(&'static Table),
    ListOf(&'static Table),
    /// A list of texts that match this regular expression.
    List(&'static str),
}

const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, shape, about }
}

impl Table {
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().copied().flatten()
    }
}

impl Keys for Table {
    fn support(&self, key: &str) -> Option<Support> {
        self.all().any(|known| known.name == key).then_some(Support::Used)
    }

    fn names(&self) -> Vec<&'static str> {
        self.all().map(|key| key.name).collect()
    }

    fn parent_of(&self, key: &str) -> Option<&'static str> {
        let has_it = |parent: &&Key| {
            let table = parent.shape.table();
            table.is_some_and(|table| table.all().any(|known| known.name == key))
        };
        let mut parents = self.all().filter(has_it);
        parents.next().filter(|_| parents.next().is_none()).map(|parent| parent.name)
    }
}

/// The whole file.
pub(super) static ROOT: Table = Table {
    keys: &[
        &[
            key("stateDir", Path, "State directory. Default: /var/lib/driftless"),
            key("stateKeyFile", File, "Key that encrypts the database. Default: in the state directory"),
            key("runtimeDir", Path, "Runtime directory, on a memory file system. Default: /run/driftless"),
            key("listen", Address, "Address of the API and the status page. Default: 127.0.0.1:8484"),
            key("tls", Object(&LISTEN_TLS), "Certificate of the API and the page, for https. Default: http"),
            key(
                "tokenFile",
                File,
                "File with the token of the API. Required beyond loopback, unless there is `trustedProxy` or `oidc`",
            ),
            key(
                "socket",
                TextOr(&SOCKET),
                "Unix socket of the API, or none. Default: below /run with systemd",
            ),
            key("trustedProxy", Object(&TRUSTED_PROXY), "Reverse proxy that authenticates people"),
            key("oidc", Object(&OIDC), "OpenID provider that people log in with"),
            key("audit", Object(&AUDIT), "How the audit is kept"),
            key("host", Object(&HOST), "Name and labels of this host"),
            key("allow", List(ALLOWED), "Settings that driftless.yaml of a repository may have"),
            key("docker", TextOr(&DOCKER), "Docker Engine: unix:// and a path, or tcp://host:port"),
            key("buildTimeout", Duration, "Maximum time of an image build. Default: 1h"),
            key("imageCleanup", Object(&IMAGE_CLEANUP), "Clean-up of images. Default: none are removed"),
            key("policy", Object(&ADMISSION), "What manifests may contain. Default: everything"),
            key("sops", Object(&SOPS), "Keys for files that SOPS or age encrypted"),
            key("valuesFrom", ListOf(&VALUES_FROM), "Variables of Compose files that lie on this machine"),
            key("credentials", ListOf(&CREDENTIALS), "Credentials for all repositories of a host"),
            key("registries", ListOf(&REGISTRY), "Logins for image registries"),
            key("webhooks", Object(&WEBHOOKS), "Webhooks of all repositories"),
            key("metrics", Object(&METRICS), "Metrics for Prometheus"),
            key("notifications", Object(&NOTIFICATIONS), "Notifications about incidents"),
            key("report", Object(&REPORT), "Collectors that this host reports its state to"),
            key("fleet", Object(&FLEET), "Reports of other hosts that this agent accepts"),
            key("repositories", ListOf(&REPOSITORY), "The repositories that the agent follows"),
        ],
        POLICY,
    ],
    required: &["repositories"],
};

pub(super) static SOCKET: Table = Table {
    keys: &[&[
        key("path", Text, "Path of the socket, or none. Default: below /run with systemd"),
        key("group", Text, "Group whose members may connect. Default: only root and the user of the agent"),
        key("scopes", Strings, "read, act, act:app/NAME, act:repo/NAME, report, report:host/NAME or admin"),
    ]],
    required: &[],
};

pub(super) static LISTEN_TLS: Table = Table {
    keys: &[&[
        key("certFile", File, "Certificate with the intermediate ones, as a PEM file"),
        key("keyFile", File, "Private key of the certificate, as a PEM file"),
    ]],
    required: &["certFile", "keyFile"],
};

/// `report`.
pub(super) static REPORT: Table = Table {
    keys: &[&[
        key(
            "to",
            OneOrMore(&FLEET_PLACE),
            "Agent that accepts reports, s3://BUCKET/FOLDER, davs://HOST/FOLDER, or a list of them",
        ),
        key("tokenFile", File, "File with a token of the scope report:host/NAME, for agents"),
        key("tokenEnv", Text, "Environment variable with the token"),
        key("caFile", File, "Certificate authorities of the servers, as a PEM file. Default: the system's"),
        key("every", Duration, "Time between two heartbeats, from 5s to 3m. Default: 30s"),
    ]],
    required: &["to"],
};

/// The settings of a place that belong to one kind of places.
pub(super) static PLACE_SETTINGS: &[&str] = &[
    "tokenFile",
    "tokenEnv",
    "endpoint",
    "region",
    "credentialsFile",
    "user",
    "passwordFile",
    "passwordEnv",
];

/// A place of reports.
pub(super) static FLEET_PLACE: Table = Table {
    keys: &[&[
        key("url", Text, "https://HOST of another agent, s3://BUCKET/FOLDER or davs://HOST/FOLDER"),
        key("caFile", File, "Certificate authorities of the server, as a PEM file"),
        key("tokenFile", File, "File with the token for another agent"),
        key("tokenEnv", Text, "Environment variable with the token"),
        key("endpoint", Text, "URL of the S3-compatible server. Default: AWS_ENDPOINT_URL_S3, or Amazon's"),
        key("region", Text, "Region of the bucket. Default: AWS_REGION, or us-east-1"),
        key("credentialsFile", File, "Keys of the bucket, in the form of Amazon's tools"),
        key("user", Text, "User of the WebDAV server. Default: WEBDAV_USER"),
        key("passwordFile", File, "File with the password of the user"),
        key("passwordEnv", Text, "Environment variable with the password. Default: WEBDAV_PASSWORD"),
    ]],
    required: &["url"],
};

/// `fleet`.
pub(super) static FLEET: Table = Table {
    keys: &[&[
        key("accept", Boolean, "Accept the reports of other hosts. Default: false"),
        key("enrolment", Word(&["optional", "required"]), "Whether hosts must join. Default: optional"),
        key(
            "allowRequests",
            Strings,
            "sync, suspend, resume, rollback: what a collector may ask. Default: none",
        ),
        key("from", TextOr(&FLEET_PLACE), "Read the reports in s3://BUCKET/FOLDER or davs://HOST/FOLDER"),
        key("expected", Strings, "Hosts that are shown also if they have never reported"),
    ]],
    required: &[],
};

pub(super) static POLICY: &[Key] = &[
    key(
        "engine",
        Word(&["docker", "swarm"]),
        "Containers of this host, or services of its Docker Swarm. Default: docker",
    ),
    key("selfHeal", Boolean, "Undo manual changes at once; false reports them. Default: true"),
    key("prune", Boolean, "Remove what disappears from Git, except volumes. Default: false"),
    key(
        "maxPrunePercent",
        Integer(100),
        "Part of the workloads that a commit may remove at once. Default: 50",
    ),
    key("adopt", Word(&["ask", "auto", "never"]), "Adopt containers of Docker Compose. Default: ask"),
    key(
        "filesystemDrift",
        Word(&["off", "report", "revert"]),
        "Files that somebody changes inside a running container. Default: report",
    ),
    key(
        "onFailure",
        Word(&["none", "pause", "rollback"]),
        "When a commit fails: report it, pause its rollouts, or go back. Default: pause",
    ),
    key("syncWindows", ListOf(&SYNC_WINDOW), "When new commits are applied. Default: at any time"),
    key("dependsOn", ListOf(&APP_DEPENDENCY), "Applications that a new commit waits for. Default: none"),
    key("after", TextOr(&AFTER), "Hosts that a new commit must work on first. Default: none"),
    key(
        "imageUpdate",
        TextOr(&IMAGE_UPDATE),
        "When the registry has a newer image: off, report, digest, or more. Default: report",
    ),
    key(
        "ignoreDifferences",
        ListOf(&IGNORED_DIFFERENCES),
        "Fields of live containers whose differences are reported and left. Default: none",
    ),
    key("monitor", Duration, "Time in which a commit that was applied can still fail. Default: 1m; 0s: none"),
    key(
        "progressDeadline",
        Duration,
        "Longest time of a rollout without progress. Default: that of the manifest, else 10 minutes",
    ),
];

pub(super) static TRUSTED_PROXY: Table = Table {
    keys: &[&[
        key("from", Strings, "Addresses and networks of the proxy"),
        key("localUsers", Strings, "Numbers of the users that a proxy over loopback runs as"),
        key("userHeader", Text, "Header with the name of the user. Default: Remote-User"),
        key("groupsHeader", Text, "Header with the groups of the user. Default: Remote-Groups"),
        key("groups", ListOf(&PROXY_GROUP), "Groups and their scopes"),
    ]],
    required: &["from", "groups"],
};

pub(super) static OIDC: Table = Table {
    keys: &[&[
        key("issuer", Text, "URL of the provider, as it names itself"),
        key("clientId", Text, "Name of this agent at the provider"),
        key("clientSecretFile", File, "File with the password of this agent at the provider"),
        key("clientSecretEnv", Text, "Environment variable with that password"),
        key(
            "url",
            Text,
            "URL of the page in browsers. The provider sends them back to auth/callback below it",
        ),
        key(
            "requestedScopes",
            Strings,
            "Scopes to ask for. Default: openid, profile, and groups if it is known",
        ),
        key("userClaim", Text, "Claim with the name of the person. Default: preferred_username"),
        key("groupsClaim", Text, "Claim with the groups; dots lead into objects. Default: groups"),
        key("groups", ListOf(&PROXY_GROUP), "Groups and their scopes"),
        key("users", ListOf(&OIDC_USER), "Persons and their scopes"),
        key("caFile", File, "PEM file of further certificate authorities"),
    ]],
    required: &["issuer", "clientId", "url"],
};

static OIDC_USER: Table = Table {
    keys: &[&[
        key("name", Text, "Name of the person in the userClaim; * is everybody"),
        key("scopes", Strings, "read, act, act:app/NAME, act:repo/NAME, report, report:host/NAME or admin"),
    ]],
    required: &["name", "scopes"],
};

pub(super) static PROXY_GROUP: Table = Table {
    keys: &[&[
        key("name", Text, "Name of the group; * is every user"),
        key("scopes", Strings, "read, act, act:app/NAME, act:repo/NAME, report, report:host/NAME or admin"),
    ]],
    required: &["name", "scopes"],
};

pub(super) static IMAGE_CLEANUP: Table = Table {
    keys: &[&[
        key("revisions", Integer(10), "Newest revisions that keep their images, from 1. Default: 10"),
        key("age", Duration, "Age up to which they do. Default: 720h"),
        key("minFree", Text, "Remove only until this much of the disk is free: `20GB`, `10%`. Default: all"),
        key("maxBuildCache", Text, "Largest build cache of the engine: `10GB`. Default: it is left alone"),
    ]],
    required: &[],
};

pub(super) static AUDIT: Table = Table {
    keys: &[&[
        key("keep", Duration, "How long entries are kept in the database. Default: 365d"),
        key("file", Path, "File that each entry is appended to, as a line of JSON"),
    ]],
    required: &[],
};

/// `imageUpdate`.
pub(super) static IMAGE_UPDATE: Table = Table {
    keys: &[&[
        key("mode", Word(&["off", "report", "apply"]), "Whether newer images are deployed. Default: apply"),
        key("semver", Text, "Follow the newest tag of this range of versions"),
        key("tags", Text, "Only tags that match this pattern; * is any text"),
        key("minAge", Duration, "Deploy an image once it has been known for this long. Default: 0s"),
        key("every", Duration, "Time between two looks at the registry, at least 1m. Default: 1h"),
    ]],
    required: &[],
};

pub(super) static IGNORED_DIFFERENCES: Table = Table {
    keys: &[&[
        key("workload", Text, "Name of the workload. Default: all workloads"),
        key("fields", Strings, "Paths as `driftless diff` prints them, such as resources.memory"),
    ]],
    required: &["fields"],
};

pub(super) static AFTER: Table = Table {
    keys: &[&[
        key("labels", Mapping, "Labels of the first hosts, all of them; * is any text"),
        key("healthyFor", Duration, "How long they must run the commit and be healthy. Default: 10m"),
        key(
            "else",
            Word(&["hold", "proceed"]),
            "If they are unknown or unfinished after maxWait. Default: hold",
        ),
        key("maxWait", Duration, "Longest wait for hosts that did not fail. Default: 2h"),
    ]],
    required: &["labels"],
};

pub(super) static APP_DEPENDENCY: Table = Table {
    keys: &[&[
        key("app", Text, "Name of the application"),
        key(
            "condition",
            Word(&["ready", "healthy", "completed"]),
            "ready: its newest commit is applied; completed: its Jobs, too. Default: healthy",
        ),
    ]],
    required: &["app"],
};

pub(super) static SYNC_WINDOW: Table = Table {
    keys: &[&[
        key("kind", Word(&["allow", "deny"]), "Apply commits in this window only, or not in this window"),
        key("schedule", Text, "Begin of the window: the five fields of cron"),
        key("duration", Duration, "Length of the window"),
        key("timeZone", Text, "Time zone of the schedule, such as Europe/Berlin. Default: UTC"),
        key("manualSync", Boolean, "Whether `driftless sync` applies commits all the same. Default: false"),
    ]],
    required: &["kind", "schedule", "duration"],
};

pub(super) static DOCKER: Table = Table {
    keys: &[&[
        key("host", Text, "unix:// and a path, or tcp://host:port"),
        key("tls", Object(&DOCKER_TLS), "Files for a connection with TLS, for tcp:// only"),
    ]],
    required: &["host"],
};

pub(super) static DOCKER_TLS: Table = Table {
    keys: &[&[
        key("ca", File, "Certificate authorities of the engine, as a PEM file"),
        key("cert", File, "Certificate of the agent, as a PEM file"),
        key("key", File, "Private key of that certificate, as a PEM file"),
    ]],
    required: &["ca"],
};

pub(super) static SOPS: Table = Table {
    keys: &[&[key("keyFiles", Paths, "Files with age identities, SSH or OpenPGP secret keys")]],
    required: &[],
};

pub(super) static VALUES_FROM: Table = Table {
    keys: &[&[
        key("file", Path, "File in the format of .env"),
        key("exec", Strings, "Program with its arguments that prints the format of .env"),
        key("env", Text, "Environment variable of the agent"),
        key("name", Text, "Variable that has the whole text as its value, instead of the format of .env"),
        key("path", Text, "File of the repository that the source stands for, such as sites/shop/.env"),
        key("secret", Boolean, "Mask the values wherever they occur. Default: true"),
        key("interval", Duration, "How long the output of a program is used. Default: 5m"),
        key("timeout", Duration, "Maximum time of a program. Default: 30s"),
    ]],
    required: &[],
};

pub(super) static CREDENTIALS: Table = Table {
    keys: &[&[
        key("host", Text, "Host, with its port if it has one; * matches anything"),
        key("auth", Object(&AUTH), "Credentials"),
        key("caFile", File, "Additional certificate authorities, as a PEM file"),
        key("proxy", Text, "http://host:port, or direct for none"),
    ]],
    required: &["host"],
};

pub(super) static AUTH: Table = Table {
    keys: &[&[
        key("username", Text, "User. Default with a token: git"),
        key("usernameEnv", Text, "Environment variable with the user"),
        key("usernameFile", File, "File with the user"),
        key("passwordEnv", Text, "Environment variable with the password"),
        key("passwordFile", File, "File with the password"),
        key("tokenEnv", Text, "Environment variable with the token"),
        key("tokenFile", File, "File with the token"),
        key("githubApp", Object(&GITHUB_APP), "A GitHub App, instead of user and password"),
        key("sshKeyFile", File, "Private SSH key"),
        key("sshPassphraseEnv", Text, "Environment variable with the passphrase of the key"),
        key("sshPassphraseFile", File, "File with the passphrase of the key"),
        key("knownHosts", File, "File of known hosts; others are refused"),
        key(
            "hostKeys",
            List("^SHA256:"),
            "Fingerprints of the server's keys, as `ssh-keygen -l` prints them",
        ),
    ]],
    required: &[],
};

pub(super) static GITHUB_APP: Table = Table {
    keys: &[&[
        key("appId", Text, "Id or client id of the App"),
        key("installationId", Text, "Id of the installation"),
        key("privateKeyFile", File, "Private key, as GitHub provides it"),
        key("apiUrl", Text, "Default: https://api.github.com"),
    ]],
    required: &["appId", "installationId"],
};

pub(super) static REGISTRY: Table = Table {
    keys: &[&[
        key("host", Text, "Host with its port, and a path if the login is for images below it"),
        key("username", Text, "User"),
        key("usernameEnv", Text, "Environment variable with the user"),
        key("usernameFile", File, "File with the user"),
        key("passwordEnv", Text, "Environment variable with the password or token"),
        key("passwordFile", File, "File with the password or token"),
    ]],
    required: &["host"],
};

pub(super) static WEBHOOKS: Table = Table {
    keys: &[&[
        key("listen", Address, "Address for webhooks alone. Default: that of the API"),
        key("tls", Object(&LISTEN_TLS), "Certificate of `listen`, for https. Default: http"),
        key("url", Text, "URL before /hook/ as forges see it, if a reverse proxy is in front"),
    ]],
    required: &[],
};

pub(super) static METRICS: Table = Table {
    keys: &[&[
        key("listen", Address, "Address for metrics alone, without a token. Default: that of the API"),
        key("tls", Object(&LISTEN_TLS), "Certificate of `listen`, for https. Default: http"),
    ]],
    required: &[],
};

pub(super) static NOTIFICATIONS: Table = Table {
    keys: &[&[
        key("url", Text, "URL of the agent's page, for links in messages"),
        key("host", Text, "Name of this host in messages. Default: host.name"),
        key("degradedAfter", Duration, "Grace time of a degraded application. Default: 5m"),
        key("gitUnreachableAfter", Duration, "Grace time of a repository that fails. Default: 15m"),
        key("updateInterval", Duration, "Time between two messages about an incident. Default: 1h"),
        key("receivers", ListOf(&RECEIVER), "Services that messages are sent to"),
        key("routes", ListOf(&NOTIFICATION_ROUTE), "Which receiver gets what. Default: all from warnings on"),
    ]],
    required: &[],
};

pub(super) static RECEIVER: Table = Table {
    keys: &[&[
        key("name", Text, "Unique name"),
        key("type", Word(RECEIVER_TYPES), "The service"),
        key("url", Text, "URL of the server; for ntfy with the topic"),
        key("urlEnv", Text, "Environment variable with a secret URL"),
        key("urlFile", File, "File with a secret URL"),
        key("tokenEnv", Text, "Environment variable with the token"),
        key("tokenFile", File, "File with the token"),
        key("username", Text, "User"),
        key("passwordEnv", Text, "Environment variable with the password"),
        key("passwordFile", File, "File with the password"),
        key("secretEnv", Text, "Environment variable with the secret that signs (webhook)"),
        key("secretFile", File, "File with the secret that signs (webhook)"),
        key("userEnv", Text, "Environment variable with the key of the user (pushover)"),
        key("userFile", File, "File with the key of the user (pushover)"),
        key(
            "urlsEnv",
            Text,
            "Environment variable with the URLs of the services, separated by commas (apprise)",
        ),
        key(
            "urlsFile",
            File,
            "File with the URLs of the services, one per line or separated by commas (apprise)",
        ),
        key("tag", Text, "Tag of a stored configuration (apprise)"),
        key("chat", Text, "Id of the chat, or @channel (telegram)"),
        key("room", Text, "Id of the room (matrix)"),
        key("channel", Text, "Name of the channel (zulip)"),
        key("topic", Text, "Topic in the channel (zulip). Default: driftless"),
        key("server", Text, "Name of the mail server (email)"),
        key("port", Integer(65535), "Port of the mail server. Default: 587, 465 or 25, after `tls`"),
        key("tls", Word(&["starttls", "tls", "none"]), "Encryption of the connection. Default: starttls"),
        key("from", Text, "Sender (email)"),
        key("to", Strings, "Recipients (email)"),
        key("caFile", File, "Additional certificate authorities, as a PEM file"),
        key("title", Text, "Template of the title"),
        key("body", Text, "Template of the text"),
        key("quietHours", Object(&QUIET_HOURS), "Times at which only critical incidents are sent"),
        key("digest", Duration, "Collect all but critical incidents for this long"),
        key("rateLimit", Integer(1000), "Maximum number of messages in an hour. Default: 20"),
    ]],
    required: &["name", "type"],
};

/// As in the reader; a test compares them.
static RECEIVER_TYPES: &[&str] = &[
    "slack",
    "discord",
    "teams",
    "telegram",
    "ntfy",
    "gotify",
    "pushover",
    "matrix",
    "zulip",
    "email",
    "webhook",
    "alertmanager",
    "apprise",
];

pub(super) static QUIET_HOURS: Table = Table {
    keys: &[&[
        key("from", Text, "Beginning, such as 22:00"),
        key("to", Text, "End, such as 07:00"),
        key("timeZone", Text, "Such as Europe/Berlin. Default: UTC"),
    ]],
    required: &["from", "to"],
};

pub(super) static NOTIFICATION_ROUTE: Table = Table {
    keys: &[&[
        key("receivers", Strings, "Names of receivers"),
        key("applications", Strings, "Names of applications, with *. Default: all"),
        key("repositories", Strings, "Names of repositories, with *. Default: all"),
        key("severity", Word(&["info", "warning", "critical"]), "Lowest severity. Default: warning"),
        key("events", List(INCIDENT_KINDS), "Kinds of incidents. Default: all"),
    ]],
    required: &["receivers"],
};

/// As in [`driftless_model::IncidentKind::ALL`]; a test compares them.
const INCIDENT_KINDS: &str = "^(syncFailed|degraded|driftFound|driftNotHealed|pruneHeld|rolledBack|gitUnreachable|engineUnreachable|hostLost|credentialExpiring|imageAvailable|recoverRequired|imageCheckFailed)$";

pub(super) static REPOSITORY: Table = Table {
    keys: &[
        &[
            key("name", Text, "Unique name. Default: the last part of the URL without .git"),
            key(
                "url",
                Text,
                "https://, http://, ssh://, user@host:path, file:// or a path. Without credentials",
            ),
            key("branch", Text, "Branch to follow. Default: the repository's default branch"),
            key("tag", Text, "Tag to follow, also when it moves"),
            key("semver", Text, "Follow the tag with the highest version in this range"),
            key("commit", Text, "Stay at this commit (full id)"),
            key("path", Text, "Folder to look for applications in. Default: the root"),
            key("poll", Duration, "Interval between polls. Default: 60s"),
            key("timeout", Duration, "Maximum time of one fetch. Default: 10m"),
            key("idleTimeout", Duration, "Maximum silence of the server during a fetch. Default: 30s"),
            key("auth", Object(&AUTH), "Credentials, from files or environment variables"),
            key("caFile", File, "Additional certificate authorities, as a PEM file"),
            key("proxy", Text, "http://host:port, or direct for none. Default: that of the environment"),
            key("submodules", Boolean, "Read submodules, from the same host only. Default: false"),
            key("submodulePaths", Paths, "Folders of this machine that submodules may be in"),
            key("sops", Object(&SOPS), "Keys for encrypted files; replace those of the agent"),
            key("requireFastForward", Boolean, "Reject a commit that does not build on the one before it"),
            key(
                "policy",
                Object(&ADMISSION),
                "What manifests may contain; overrides single keys of the agent's",
            ),
            key("allow", List(ALLOWED), "Settings that driftless.yaml of this repository may have"),
            key("verify", Object(&VERIFY), "Signatures that every commit needs"),
            key("webhook", Object(&WEBHOOK), "Webhook of the forge"),
            key("status", Object(&STATUS), "Commit statuses on the forge"),
            key("valuesFrom", ListOf(&VALUES_FROM), "Variables of Compose files that lie on this machine"),
            key("applications", ListOf(&APPLICATION), "Applications, listed instead of discovered"),
        ],
        POLICY,
    ],
    required: &["url"],
};

pub(super) static APPLICATION: Table = Table {
    keys: &[
        &[
            key("path", Text, "Folder of the application, inside the repository's path"),
            key("name", Text, "Default: the folder's name"),
            key("suspend", Boolean, "Observe and report, change nothing. Default: false"),
            key("policy", Object(&ADMISSION), "What manifests may contain; overrides single keys"),
            key("verify", Object(&VERIFY), "Signatures that this application needs in addition"),
            key("variables", Mapping, "Variables of Compose files; override those of .env"),
            key("valuesFrom", ListOf(&VALUES_FROM), "Variables of Compose files that lie on this machine"),
            key("profiles", Strings, "Active Compose profiles"),
            key("files", Strings, "Compose files, each merged onto those before. Default: found by name"),
            key("envFiles", Strings, "Files of variables. Default: .env"),
        ],
        POLICY,
    ],
    required: &["path"],
};

pub(super) static HOST: Table = Table {
    keys: &[&[
        key("name", Text, "Name of this host. Default: its hostname"),
        key("labels", Mapping, "Labels of this host. arch, os and engine are given"),
    ]],
    required: &[],
};

/// `driftless.yaml` in a repository.
pub(super) static GIT_FILE: Table = Table {
    keys: &[
        &[
            key("hosts", ListOf(&GIT_HOST), "The hosts that follow the repository, with labels"),
            key("applications", ListOf(&GIT_APPLICATION), "Applications, listed instead of discovered"),
        ],
        POLICY,
    ],
    required: &[],
};

pub(super) static GIT_HOST: Table = Table {
    keys: &[&[
        key("name", Text, "Name of the host"),
        key("labels", Mapping, "Labels of the host. Those of its own configuration win"),
    ]],
    required: &["name"],
};

pub(super) static GIT_APPLICATION: Table = Table {
    keys: &[
        &[
            key("path", Text, "Folder of the application, from the folder of this file"),
            key("name", Text, "Default: the folder's name"),
            key("hosts", Object(&HOST_SELECTOR), "The hosts that run the application. Default: all"),
            key("perHost", ListOf(&PER_HOST), "Settings for some hosts; a later entry wins"),
        ],
        GIT_SETTINGS,
        POLICY,
    ],
    required: &["path"],
};

pub(super) static PER_HOST: Table = Table {
    keys: &[
        &[key("hosts", Object(&HOST_SELECTOR), "The hosts that these settings are for")],
        GIT_SETTINGS,
        POLICY,
    ],
    required: &["hosts"],
};

pub(super) static GIT_SETTINGS: &[Key] = &[
    key("suspend", Boolean, "Observe and report, change nothing. Default: false"),
    key("variables", Mapping, "Variables of Compose files; override those of .env"),
    key("profiles", Strings, "Active Compose profiles"),
    key("files", Strings, "Compose files, each merged onto those before. Default: found by name"),
    key("envFiles", Strings, "Files of variables. Default: .env"),
];

/// The file of hosts of a user.
pub(super) static CLIENT_FILE: Table = Table {
    keys: &[&[key("hosts", ListOf(&CLIENT_HOST), "The agents that --host names")]],
    required: &["hosts"],
};

pub(super) static CLIENT_HOST: Table = Table {
    keys: &[&[
        key("name", Text, "Name for --host"),
        key("server", Text, "Address of the agent"),
        key("tokenFile", Text, "File with its token, from the folder of this file"),
        key("caFile", Text, "Certificate authorities of the agent, from the folder of this file"),
    ]],
    required: &["name", "server"],
};

pub(super) static HOST_SELECTOR: Table = Table {
    keys: &[&[
        key("names", Strings, "Names of hosts; * is any text"),
        key("labels", Mapping, "Labels that the host has, all of them; * is any text"),
    ]],
    required: &[],
};

/// As the reader takes them; a test compares them.
pub(super) const ALLOWED: &str = "^(default|hosts|perHost|suspend|variables|profiles|files|envFiles|selfHeal|prune|maxPrunePercent|adopt|engine|filesystemDrift|onFailure|syncWindows|monitor|progressDeadline|dependsOn|after|imageUpdate|ignoreDifferences)$";

/// Keys of the configuration of a host that a repository can never set.
const OF_THE_HOST: &[&str] = &[
    "policy",
    "verify",
    "valuesFrom",
    "allow",
    "auth",
    "url",
    "webhook",
    "status",
    "credentials",
    "registries",
    "notifications",
    "requireFastForward",
    "submodules",
    "host",
];

/// The keys of a map in `driftless.yaml` of a repository.
#[derive(Debug)]
pub(super) struct GitKeys(pub(super) &'static Table);

impl Keys for GitKeys {
    fn support(&self, key: &str) -> Option<Support> {
        let refused = OF_THE_HOST.contains(&key);
        let why = "only the configuration of a host may set it";
        self.0.support(key).or_else(|| refused.then_some(Support::Refused(why)))
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.names()
    }
}

pub(super) static ADMISSION: Table = Table {
    keys: &[&[
        key("trust", Word(&["full", "limited"]), "limited: nothing that controls the host. Default: full"),
        key("privileged", Boolean, "Allow privileged containers and hooks"),
        key("unconfined", Boolean, "Allow containers without seccomp, AppArmor or SELinux"),
        key("hostNamespaces", Strings, "Namespaces of the host: network, pid, ipc, user, uts, cgroup"),
        key("capabilities", Strings, "Capabilities that may be added; * is any text"),
        key("devices", Strings, "Devices of the host; * is any text"),
        key("bindMounts", Strings, "Paths of the host: /srv/a, /srv/** with all below, /etc/a:ro"),
        key("images", Strings, "Images, such as ghcr.io/team/*; * is any text"),
        key("requireDigests", Boolean, "Images need a digest"),
        key("requireLimits", Strings, "Limits that every container needs: memory, cpus, pids"),
        key("ports", Strings, "Published ports: 8080, 8000-8999, 127.0.0.1:*"),
        key("hooks", Boolean, "Allow hooks after the start and before the stop"),
        key("builds", Boolean, "Allow builds of images"),
        key("externalNetworks", Strings, "External networks by name; * is any text"),
        key("externalVolumes", Strings, "External volumes by name; * is any text"),
        key("externalConfigs", Strings, "External configs of a Swarm by name; * is any text"),
        key("externalSecrets", Strings, "External secrets of a Swarm by name; * is any text"),
        key("otherApplications", Boolean, "Allow networks, volumes and containers of other applications"),
        key("signedCommits", Boolean, "Every repository needs verify"),
        key("verifyImages", ListOf(&VERIFY_IMAGES), "Images that must be signed with cosign"),
    ]],
    required: &[],
};

pub(super) static VERIFY_IMAGES: Table = Table {
    keys: &[&[
        key("match", Text, "Images, such as ghcr.io/team/*; * is any text"),
        key("cosignKey", File, "File with public keys in PEM, one of which must have signed"),
    ]],
    required: &["match", "cosignKey"],
};

pub(super) static VERIFY: Table = Table {
    keys: &[&[
        key("mode", Word(&["commit", "tag", "both"]), "What must be signed. Default: commit"),
        key("ssh", Object(&SSH_SIGNERS), "SSH keys that are trusted"),
        key("openpgp", Object(&OPENPGP_SIGNERS), "OpenPGP keys that are trusted"),
    ]],
    required: &[],
};

pub(super) static SSH_SIGNERS: Table = Table {
    keys: &[&[
        key("allowedSignersFile", File, "File in the format of allowed_signers (ssh-keygen(1))"),
        key("allowedSigners", Strings, "Lines in the same format"),
        key("revokedKeysFile", File, "File of revoked keys or fingerprints"),
    ]],
    required: &[],
};

pub(super) static OPENPGP_SIGNERS: Table =
    Table { keys: &[&[key("keyringFile", File, "File of OpenPGP public keys")]], required: &[] };

pub(super) static WEBHOOK: Table = Table {
    keys: &[&[
        key("provider", Word(WEBHOOK_PROVIDERS), "The forge that sends it. Default: auto"),
        key("secretEnv", Text, "Environment variable with the secret"),
        key("secretFile", File, "File with the secret, of 32 characters or more"),
        key("previousSecretEnv", Text, "Environment variable with the secret before, during a rotation"),
        key("previousSecretFile", File, "File with the secret before, during a rotation"),
        key("id", Text, "End of the webhook's path. Default: derived from the secret"),
    ]],
    required: &[],
};

/// As in [`driftless_model::WebhookProvider::ALL`]; a test compares them.
static WEBHOOK_PROVIDERS: &[&str] = &[
    "auto",
    "github",
    "gitlab",
    "gitea",
    "forgejo",
    "gogs",
    "bitbucket",
    "azure-devops",
    "hmac-sha256",
    "hmac-sha512",
    "standard-webhooks",
];

pub(super) static STATUS: Table = Table {
    keys: &[&[
        key("provider", Word(&["github", "gitlab", "gitea", "forgejo"]), "Type of the forge"),
        key("tokenEnv", Text, "Environment variable with the token"),
        key("tokenFile", File, "File with the token"),
        key("url", Text, "Address of the forge's API. Default: derived from the repository's URL"),
        key("project", Text, "owner/name. Default: derived from the repository's URL"),
        key("context", Text, "Name of the status; a different one on each host. Default: driftless"),
    ]],
    required: &["provider"],
};

/// The names of some keys.
pub(super) fn names(keys: &'static [Key]) -> impl Iterator<Item = &'static str> {
    keys.iter().map(|key| key.name)
}

#[cfg(test)]
mod tests {
    use driftless_model::WebhookProvider;

    use super::*;

    #[test]
    fn words_of_notifications_are_those_that_the_reader_takes() {
        let kinds: Vec<&str> = driftless_model::IncidentKind::ALL.iter().map(|(name, _)| *name).collect();
        assert_eq!(INCIDENT_KINDS, format!("^({})$", kinds.join("|")));
        assert_eq!(RECEIVER_TYPES, crate::notifications::types());
    }

    #[test]
    fn providers_of_webhooks_are_those_that_the_reader_takes() {
        let known: Vec<&str> = WebhookProvider::ALL.iter().map(|(name, _)| *name).collect();
        let mut listed = WEBHOOK_PROVIDERS.to_vec();
        listed.sort_unstable();
        let mut sorted = known.clone();
        sorted.sort_unstable();
        assert_eq!(listed, sorted);
    }
}
