//! The paths of this machine that limited trust does not reach: the agent's own folders and the engine's socket, and the files
//! that give the rights of the agent to those who read or write them, which are keys, passwords, tokens, values, and keys that
//! the agent trusts. Certificates and their authorities are not among them: many programs mount them.

use std::{collections::BTreeSet, path::PathBuf};

use driftless_model::AdmissionPolicy;

use crate::{
    api_socket::SocketPlace,
    fleet_place::{FleetBucket, FleetFolder, FleetPlace, PlaceKind},
    notifications::{Email, Login, Target},
    secret::Secret,
    settings::{Auth, Repository, Settings, Verify},
    values_from::{ValueOrigin, ValueSource},
};

impl Settings {
    /// Names the agent's own folders, the files with its keys, secrets and values, and the engine's socket in the rules of every
    /// repository, so that limited trust does not reach them. To be called again after options have changed one of these paths.
    pub fn protect_paths(&mut self) {
        let own = [&self.state_dir, &self.runtime_dir].into_iter().chain(key_files(self));
        let socket = self.docker.socket().into_iter().chain(match &self.socket.place {
            SocketPlace::Path(path) => Some(path.display().to_string()),
            SocketPlace::ServiceManager | SocketPlace::None => None,
        });
        let known = AdmissionPolicy::PROTECTED.iter().map(|path| (*path).to_owned());
        let paths: BTreeSet<String> =
            own.map(|path| path.display().to_string()).chain(socket).chain(known).collect();
        for repository in &mut self.repositories {
            repository.admission.protected.clone_from(&paths);
            for application in &mut repository.applications {
                application.admission.protected.clone_from(&paths);
            }
        }
    }
}

/// The files with keys, secrets and values that settings name. A test compares them with the table of keys.
fn key_files(settings: &Settings) -> BTreeSet<&PathBuf> {
    let mut found = KeyFiles::default();
    found.files(&settings.state_key_file);
    found.files(&settings.token_file);
    found.files(&settings.sops_key_files);
    let listeners = [&settings.tls, &settings.webhooks.tls, &settings.metrics.tls];
    found.files(listeners.into_iter().flatten().map(|tls| &tls.key_file));
    let client = settings.docker.tls.as_ref().and_then(|tls| tls.client.as_ref());
    found.files(client.map(|(_, key)| key));
    found.secrets(settings.oidc.as_ref().and_then(|oidc| oidc.client_secret.as_ref()));
    settings.credentials.iter().for_each(|auth| found.auth(auth));
    for registry in &settings.registries {
        found.secrets([&registry.username, &registry.password]);
    }
    settings.notifications.receivers.iter().for_each(|receiver| found.target(&receiver.target));
    settings.report.to.iter().chain(&settings.fleet.from).for_each(|place| found.place(place));
    settings.repositories.iter().for_each(|repository| found.repository(repository));
    found.0
}

#[derive(Default)]
struct KeyFiles<'a>(BTreeSet<&'a PathBuf>);

impl<'a> KeyFiles<'a> {
    fn files(&mut self, files: impl IntoIterator<Item = &'a PathBuf>) {
        self.0.extend(files);
    }

    fn secrets(&mut self, secrets: impl IntoIterator<Item = &'a Secret>) {
        self.0.extend(secrets.into_iter().filter_map(|secret| match secret {
            Secret::File(path) => Some(path),
            Secret::Environment(_) | Secret::Plain(_) => None,
        }));
    }

    fn repository(&mut self, repository: &'a Repository) {
        self.auth(&repository.auth);
        self.verify(repository.verify.as_ref());
        self.files(repository.sops_key_files.iter().flatten());
        self.admission(&repository.admission);
        self.values(&repository.values_from);
        if let Some(webhook) = &repository.webhook {
            self.secrets([&webhook.secret].into_iter().chain(&webhook.previous));
        }
        self.secrets(repository.status.as_ref().map(|status| &status.token));
        for application in &repository.applications {
            self.verify(application.verify.as_ref());
            self.admission(&application.admission);
            self.values(&application.values_from);
        }
    }

    fn auth(&mut self, auth: &'a Auth) {
        let Auth { username, password, github_app, ssh_key, ssh_passphrase, known_hosts, host_keys: _ } =
            auth;
        self.secrets(username.iter().chain(password).chain(ssh_passphrase));
        self.files(ssh_key.iter().chain(known_hosts));
        self.files(github_app.as_ref().map(|app| &app.private_key));
    }

    fn verify(&mut self, verify: Option<&'a Verify>) {
        let Some(verify) = verify else { return };
        let Verify { mode: _, allowed_signers_file, allowed_signers: _, revoked_keys_file, keyring_file } =
            verify;
        self.files(allowed_signers_file.iter().chain(revoked_keys_file).chain(keyring_file));
    }

    fn admission(&mut self, admission: &'a AdmissionPolicy) {
        self.files(admission.verify_images.iter().flatten().map(|rule| &rule.key));
    }

    /// Also of values that are not secret: those who write them decide what other applications run.
    fn values(&mut self, sources: &'a [ValueSource]) {
        self.files(sources.iter().filter_map(|source| match &source.origin {
            ValueOrigin::File(path) => Some(path),
            ValueOrigin::Exec(_) | ValueOrigin::Environment(_) => None,
        }));
    }

    fn place(&mut self, place: &'a FleetPlace) {
        match &place.kind {
            PlaceKind::Collector { token } => self.secrets(token),
            PlaceKind::Bucket(FleetBucket {
                credentials_file,
                name: _,
                prefix: _,
                endpoint: _,
                region: _,
            }) => {
                self.files(credentials_file);
            }
            PlaceKind::Folder(FleetFolder { password, url: _, user: _ }) => self.secrets(password),
        }
    }

    fn target(&mut self, target: &'a Target) {
        match target {
            Target::Slack { url } | Target::Discord { url } | Target::Teams { url } => self.secrets([url]),
            Target::Telegram { token, url: _, chat: _ }
            | Target::Gotify { token, url: _ }
            | Target::Matrix { token, url: _, room: _ }
            | Target::Zulip { token, url: _, bot: _, channel: _, topic: _ } => self.secrets([token]),
            Target::Pushover { token, user, url: _ } => self.secrets([token, user]),
            Target::Ntfy { url, login } => {
                self.secrets([url]);
                self.login(login);
            }
            Target::Alertmanager { login, url: _ } => self.login(login),
            Target::Email(Email { login, server: _, port: _, tls: _, from: _, to: _ }) => {
                self.secrets(login.as_ref().map(|(_, password)| password));
            }
            Target::Webhook { url, secret } => self.secrets([url].into_iter().chain(secret)),
            Target::Apprise { targets, url: _, tag: _ } => self.secrets(targets),
        }
    }

    fn login(&mut self, login: &'a Login) {
        match login {
            Login::Open => {}
            Login::Token(secret) | Login::Basic(_, secret) => self.secrets([secret]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        keys::{ROOT, Shape, Table},
        named_files::named_files,
    };

    /// The key of every file, without indexes. Files below `/k` are to be protected, those below `/p` are not.
    const SETTINGS: &str = "
stateKeyFile: /k/state
tls: {certFile: /p/tls, keyFile: /k/tls}
tokenFile: /k/token
oidc:
  {issuer: 'https://a.example.com', clientId: x, url: 'https://b.example.com', users: [{name: ada, scopes: [read]}],
   clientSecretFile: /k/oidc, caFile: /p/oidc}
docker: {host: 'tcp://engine:2376', tls: {ca: /p/engine-ca, cert: /p/engine, key: /k/engine}}
sops: {keyFiles: [/k/sops, /k/sops-2]}
valuesFrom: [{file: /k/values}]
policy: {verifyImages: [{match: '*', cosignKey: /k/cosign}]}
credentials:
- {host: git.example.com, caFile: /p/host, auth: {usernameFile: /k/host-user, passwordFile: /k/host-password}}
- {host: a.example.com, auth: {tokenFile: /k/host-token}}
- {host: b.example.com, auth: {githubApp: {appId: 1, installationId: 2, privateKeyFile: /k/host-app}}}
- host: '*'
  auth: {sshKeyFile: /k/host-ssh, sshPassphraseFile: /k/host-passphrase, knownHosts: /k/host-known}
registries: [{host: ghcr.io, usernameFile: /k/registry-user, passwordFile: /k/registry-password}]
webhooks: {listen: '127.0.0.1:1', tls: {certFile: /p/hooks, keyFile: /k/hooks}}
metrics: {listen: '127.0.0.1:2', tls: {certFile: /p/metrics, keyFile: /k/metrics}}
notifications:
  receivers:
  - {name: slack, type: slack, urlFile: /k/slack, caFile: /p/slack}
  - {name: discord, type: discord, urlFile: /k/discord}
  - {name: teams, type: teams, urlFile: /k/teams}
  - {name: telegram, type: telegram, chat: '1', tokenFile: /k/telegram}
  - {name: ntfy, type: ntfy, urlFile: /k/ntfy-topic, tokenFile: /k/ntfy}
  - {name: gotify, type: gotify, url: 'https://g.example.com', tokenFile: /k/gotify}
  - {name: pushover, type: pushover, tokenFile: /k/pushover, userFile: /k/pushover-user}
  - {name: matrix, type: matrix, url: 'https://m.example.com', room: '!a:m', tokenFile: /k/matrix}
  - {name: zulip, type: zulip, url: 'https://z.example.com', username: a@b, channel: c, tokenFile: /k/zulip}
  - {name: mail, type: email, server: m, from: a@b, to: [c@d], username: u, passwordFile: /k/mail}
  - {name: hook, type: webhook, urlFile: /k/hook, secretFile: /k/hook-secret}
  - {name: alerts, type: alertmanager, url: 'https://l.example.com', username: u, passwordFile: /k/alerts}
  - {name: apprise, type: apprise, url: 'https://p.example.com', urlsFile: /k/apprise}
report:
  to:
  - https://one.example.com
  - {url: 'https://two.example.com', tokenFile: /k/report-token, caFile: /p/report}
  - {url: 's3://bucket', credentialsFile: /k/report-bucket}
  - {url: 'davs://dav.example.com/fleet', user: u, passwordFile: /k/report-folder}
  tokenFile: /k/report
  caFile: /p/reports
fleet: {from: {url: 's3://bucket', credentialsFile: /k/fleet-bucket, caFile: /p/fleet}}
repositories:
- url: https://git.example.com/me/one.git
  caFile: /p/one
  auth: {usernameFile: /k/one-user, passwordFile: /k/one-password}
  sops: {keyFiles: [/k/one-sops]}
  verify:
    ssh: {allowedSignersFile: /k/one-signers, revokedKeysFile: /k/one-revoked}
    openpgp: {keyringFile: /k/one-keyring}
  webhook: {secretFile: /k/one-hook, previousSecretFile: /k/one-hook-before}
  status: {provider: gitlab, tokenFile: /k/one-status}
  valuesFrom: [{file: /k/one-values, secret: false}]
- url: https://git.example.com/two.git
  auth: {tokenFile: /k/two-token}
  policy: {verifyImages: [{match: '*', cosignKey: /k/two-cosign}]}
  applications:
  - path: shop
    policy: {verifyImages: [{match: '*', cosignKey: /k/shop-cosign}]}
    verify:
      ssh: {allowedSignersFile: /k/shop-signers, revokedKeysFile: /k/shop-revoked}
      openpgp: {keyringFile: /k/shop-keyring}
    valuesFrom: [{file: /k/shop-values}]
- url: https://git.example.com/three.git
  auth: {githubApp: {appId: 1, installationId: 2, privateKeyFile: /k/three-app}}
- url: ssh://git@git.example.com/four.git
  auth: {sshKeyFile: /k/four-ssh, sshPassphraseFile: /k/four-passphrase, knownHosts: /k/four-known}
";

    /// `fleet.from` is one place, and each kind has files of its own.
    const PLACES: [&str; 2] = [
        "fleet: {from: {url: 'https://hub.example.com', tokenFile: /k/token}}\nrepositories: [{url: /srv/a}]\n",
        "fleet: {from: {url: 'davs://dav/fleet', user: u, passwordFile: /k/dav}}\nrepositories: [{url: /srv/a}]\n",
    ];

    fn file_keys(table: &Table, path: &str, found: &mut BTreeSet<String>) {
        for key in table.all() {
            let path = format!("{path}{}{}", if path.is_empty() { "" } else { "." }, key.name);
            match &key.shape {
                Shape::File => drop(found.insert(path)),
                Shape::Object(table)
                | Shape::TextOr(table)
                | Shape::ListOf(table)
                | Shape::OneOrMore(table) => {
                    file_keys(table, &path, found);
                }
                Shape::Text
                | Shape::Path
                | Shape::Address
                | Shape::Duration
                | Shape::Boolean
                | Shape::Integer(_)
                | Shape::Word(_)
                | Shape::Strings
                | Shape::Paths
                | Shape::Mapping
                | Shape::List(_) => {}
            }
        }
    }

    fn without_indexes(key: &str) -> String {
        key.split(['[', ']']).step_by(2).collect()
    }

    #[test]
    fn every_file_but_certificates_is_protected() {
        let mut used = BTreeSet::new();
        for text in [SETTINGS].into_iter().chain(PLACES) {
            let settings = Settings::parse("driftless.yaml", text).unwrap();
            for file in named_files("driftless.yaml", text) {
                let is_certificate =
                    ["caFile", "certFile", "tls.ca", "tls.cert"].iter().any(|end| file.key.ends_with(end));
                assert_eq!(file.path.starts_with("/p"), is_certificate, "{}", file.key);
                used.insert(without_indexes(&file.key));
            }
            let is_path = |letter: char| letter.is_ascii_alphanumeric() || "/-".contains(letter);
            let paths = |folder: &str| -> Vec<&str> {
                text.split(|letter| !is_path(letter)).filter(|path| path.starts_with(folder)).collect()
            };
            let (secret, open) = (paths("/k/"), paths("/p/"));
            let distinct: BTreeSet<&str> = secret.iter().copied().collect();
            assert_eq!(distinct.len(), secret.len(), "each key has a file of its own");
            for repository in &settings.repositories {
                let of_applications =
                    repository.applications.iter().map(|application| &application.admission);
                for policy in of_applications.chain([&repository.admission]) {
                    let missing: Vec<_> =
                        secret.iter().filter(|path| !policy.protected.contains(**path)).collect();
                    assert!(missing.is_empty(), "not protected: {missing:?}");
                    assert!(open.iter().all(|path| !policy.protected.contains(*path)), "{policy:?}");
                }
            }
        }
        let mut known = BTreeSet::new();
        file_keys(&ROOT, "", &mut known);
        let untested: Vec<_> = known.difference(&used).collect();
        assert!(
            untested.is_empty(),
            "add these keys to the settings of this test, each with a file: {untested:?}"
        );
    }

    #[test]
    fn files_of_options_are_protected() {
        let mut settings = Settings::for_repository("/srv/a", "", crate::Reference::Head).unwrap();
        let key = PathBuf::from("/home/ada/key");
        settings.repositories[0].auth.ssh_key = Some(key.clone());
        settings.protect_paths();
        assert!(
            key_files(&settings).contains(&key)
                && !key_files(&settings).contains(&Path::new("/p").to_owned())
        );
        assert!(settings.repositories[0].admission.protected.contains("/home/ada/key"));
    }
}
