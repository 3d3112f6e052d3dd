//! The keys of a repository in words: which one logs in, checks the server, checks commits. Never a value.

use std::path::Path;

use super::{Auth, Repository, Secret, Verify, VerifyMode};

impl Repository {
    /// A sentence for each key that the repository uses, with its place. Empty: it uses none.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let Auth { username: _, password, github_app, ssh_key, ssh_passphrase: _, known_hosts, host_keys } =
            &self.auth;
        let mut say = |sentence: Option<String>| keys.extend(sentence);
        say(ssh_key.as_deref().map(|path| format!("the SSH key {} logs in", path.display())));
        say(password.as_ref().map(|secret| format!("the token or password in {} logs in", place(secret))));
        say(github_app.as_ref().map(|app| {
            format!("the key {} logs in as the GitHub App {}", app.private_key.display(), app.app)
        }));
        say(known_hosts
            .as_deref()
            .map(|path| format!("the known hosts in {} check the server", path.display())));
        for fingerprint in host_keys {
            say(Some(format!("the host key {fingerprint} checks the server")));
        }
        say(self
            .ca_file
            .as_deref()
            .map(|path| format!("the authorities in {} check the server", path.display())));
        if let Some(verify) = &self.verify {
            keys.extend(signers(verify));
        }
        let status = self.status.as_ref();
        keys.extend(
            status.map(|status| format!("the token in {} sends commit statuses", place(&status.token))),
        );
        for path in self.sops_key_files.iter().flatten() {
            keys.push(format!("the keys in {} open its encrypted files", path.display()));
        }
        keys
    }
}

/// The keys that may sign.
fn signers(verify: &Verify) -> Vec<String> {
    let Verify { mode, allowed_signers_file, allowed_signers, revoked_keys_file, keyring_file } = verify;
    let objects = match mode {
        VerifyMode::Commit => "commits",
        VerifyMode::Tag => "the tag",
        VerifyMode::Both => "the tag and its commit",
    };
    let file = |what: &str, path: &Path| format!("{what} in {} may sign {objects}", path.display());
    let listed = match allowed_signers.len() {
        0 => None,
        1 => Some(format!("one signer of the configuration may sign {objects}")),
        count => Some(format!("{count} signers of the configuration may sign {objects}")),
    };
    let revoked = revoked_keys_file.as_deref();
    [
        allowed_signers_file.as_deref().map(|path| file("the signers", path)),
        listed,
        keyring_file.as_deref().map(|path| file("the OpenPGP keys", path)),
        revoked.map(|path| format!("the keys in {} may sign nothing any more", path.display())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn place(secret: &Secret) -> String {
    match secret {
        Secret::File(path) => path.display().to_string(),
        Secret::Environment(name) => format!("the variable {name}"),
        Secret::Plain(_) => "the configuration".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::Settings;

    fn keys(rest: &str) -> Vec<String> {
        let text = format!("repositories:\n- url: ssh://git@git.example.com/infra.git\n{rest}");
        Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0).keys()
    }

    #[test]
    fn each_key_is_named_with_its_place() {
        assert!(keys("").is_empty());
        let fingerprint = format!("SHA256:{}", "a".repeat(43));
        let text = format!(
            "  auth: {{sshKeyFile: /etc/driftless/id, hostKeys: ['{fingerprint}']}}\n  tag: v1\n  verify:\n    \
             mode: both\n    ssh: {{allowedSignersFile: /etc/signers, revokedKeysFile: /etc/revoked}}\n    openpgp: \
             {{keyringFile: /etc/k.asc}}\n  sops: {{keyFiles: [/etc/age]}}\n"
        );
        assert_eq!(
            keys(&text),
            [
                "the SSH key /etc/driftless/id logs in",
                &format!("the host key {fingerprint} checks the server"),
                "the signers in /etc/signers may sign the tag and its commit",
                "the OpenPGP keys in /etc/k.asc may sign the tag and its commit",
                "the keys in /etc/revoked may sign nothing any more",
                "the keys in /etc/age open its encrypted files",
            ]
        );
    }
}
