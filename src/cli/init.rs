//! `driftless init`: writes a configuration of the agent and checks it.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, IsTerminal, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    context::{Context, Environment, ExitStatus},
    doctor::check_settings,
    error::{CommandError, Error as CliError},
    output::print,
    run::{DEFAULT_CONFIG, docker_host_outside, hostname},
};
use driftless_config::{DockerHost, Settings};

/// The schema that the package installs, for editors.
const SCHEMA: &str = "/usr/share/driftless/driftless.schema.json";

/// Write a configuration for one repository, with comments, and check it.
///
/// Asks for what is missing if a person is there to answer. Credentials are never written: name the files that contain
/// them. `driftless config example` shows every other key. Then it checks the machine, the engine and Git as `driftless
/// doctor` does, and exits with 1 if a check failed; the file is written all the same.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless init
  driftless init https://git.example.com/me/infra.git --path sites \\
    --token-file /etc/driftless/git-token
  driftless init git@git.example.com:me/infra.git --output ./driftless.yaml \\
    --ssh-key /etc/driftless/id_ed25519 \\
    --known-hosts /etc/driftless/known_hosts")]
pub(super) struct InitArgs {
    /// URL of the repository, without credentials.
    url: Option<String>,
    /// Folder of the repository to look for applications in [default: its root]
    #[arg(long, value_name = "FOLDER")]
    path: Option<String>,
    /// Branch to follow [default: the repository's default branch]
    #[arg(long)]
    branch: Option<String>,
    /// File with the token for the Git server.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh_key", "known_hosts"])]
    token_file: Option<PathBuf>,
    /// Private key for ssh.
    #[arg(long, value_name = "FILE")]
    ssh_key: Option<PathBuf>,
    /// File with the keys of known ssh servers.
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// File to write.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    output: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Write the file only, and check neither the machine nor the engine nor Git.
    #[arg(long)]
    no_check: bool,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("there is no URL, and nobody to ask: standard input is no terminal")]
    NoUrl,
    #[error("{0} exists and is not replaced")]
    Exists(PathBuf),
    #[error("could not write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not read the answer")]
    Answer(#[source] io::Error),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NoUrl => "give the URL of the repository: `driftless init URL`".to_owned(),
            Self::Exists(_) => "edit it, replace it with --force, or name another one in --output".to_owned(),
            Self::Write { .. } => "run as root, or name another file in --output".to_owned(),
            Self::Answer(_) => return None,
        })
    }
}

/// The values of the file; empty ones are left out.
#[derive(Debug, Default)]
struct Answers {
    url: String,
    path: String,
    branch: String,
    token_file: String,
    ssh_key: String,
    known_hosts: String,
    docker: String,
}

pub(super) async fn init(args: &InitArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let path = &args.output;
    if path.exists() && !args.force {
        return Err(Error::Exists(path.clone()).into());
    }
    let answers = Answers { docker: engine(context.environment), ..answers(args)? };
    let text = render(&answers);
    let mut settings = Settings::parse(&path.display().to_string(), &text).map_err(CliError::Findings)?;
    settings.identify(&hostname());
    write(path, &text).map_err(|source| Error::Write { path: path.clone(), source })?;
    let file = path.display();
    print(&format!("wrote {file}\n"))?;
    if let Some(unused) = docker_host_outside(path, context.environment) {
        context.screen.say(context.fold(&format!("warning: {}", unused.message)));
    }
    let exit_status =
        if args.no_check { ExitStatus::Success } else { check_settings(&settings, context).await? };
    let by_hand = format!("`driftless run --config {file}`");
    let is_default = std::path::absolute(path).is_ok_and(|path| path == Path::new(DEFAULT_CONFIG));
    let start = if is_default {
        format!("`systemctl enable --now driftless` or {by_hand}")
    } else {
        format!("{by_hand}; the packaged service reads {DEFAULT_CONFIG}")
    };
    let next = match exit_status {
        ExitStatus::Negative => {
            format!("next: correct what failed, `driftless doctor --config {file}`, then {start}\n")
        }
        _ => format!("next: {start}\n"),
    };
    print(&context.fold(&next))?;
    Ok(exit_status)
}

/// The engine of `DOCKER_HOST`, so that the agent uses that of the other programs in this shell. Empty for the default, and for an
/// address that has certificates or that is not of the agent's kinds.
fn engine(environment: &Environment) -> String {
    let host = environment("DOCKER_HOST").unwrap_or_default();
    let docker = DockerHost::with_environment(&host, environment.as_ref());
    let is_simple = docker.tls.is_none() && (host.starts_with("unix:///") || host.starts_with("tcp://"));
    if is_simple && docker != DockerHost::default() { host } else { String::new() }
}

fn answers(args: &InitArgs) -> Result<Answers, Error> {
    let shown = |path: &Option<PathBuf>| {
        let absolute = path.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        absolute.map(|path| path.display().to_string()).unwrap_or_default()
    };
    let mut answers = Answers {
        url: args.url.clone().unwrap_or_default(),
        path: args.path.clone().unwrap_or_default(),
        branch: args.branch.clone().unwrap_or_default(),
        token_file: shown(&args.token_file),
        ssh_key: shown(&args.ssh_key),
        known_hosts: shown(&args.known_hosts),
        docker: String::new(),
    };
    if args.url.is_some() {
        return Ok(answers);
    }
    if !io::stdin().is_terminal() {
        return Err(Error::NoUrl);
    }
    ask(&mut answers, &mut io::stdin().lock(), &mut io::stderr()).map_err(Error::Answer)?;
    Ok(answers)
}

/// Asks for everything that is not known yet. An empty answer takes the default.
fn ask(answers: &mut Answers, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<()> {
    let mut question = |value: &mut String, text: &str| -> io::Result<()> {
        if value.is_empty() {
            write!(output, "{text}: ")?;
            output.flush()?;
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            line.trim().clone_into(value);
        }
        Ok(())
    };
    question(&mut answers.url, "URL of the repository")?;
    question(&mut answers.branch, "Branch [the default branch]")?;
    question(&mut answers.path, "Folder with the applications [the root]")?;
    let is_ssh =
        answers.url.starts_with("ssh://") || !answers.url.contains("://") && answers.url.contains('@');
    if is_ssh {
        question(&mut answers.ssh_key, "File with the private SSH key")?;
        question(&mut answers.known_hosts, "File with the keys of known hosts")?;
    } else if answers.url.starts_with("http") {
        question(&mut answers.token_file, "File with the token [none, the repository is public]")?;
    }
    Ok(())
}

/// The configuration as YAML with comments.
fn render(answers: &Answers) -> String {
    // A JSON string is a YAML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text =
        String::from("# Configuration of the Driftless agent. `driftless config example` shows every key.\n");
    if Path::new(SCHEMA).exists() {
        text.extend([format!("# yaml-language-server: $schema={SCHEMA}\n")]);
    }
    text.push_str("# The agent reloads this file when it changes.\n\n");
    text.push_str("# Address of the API and the status page. Beyond loopback it needs `tokenFile`.\n");
    text.push_str("# listen: 127.0.0.1:8484\n\n");
    if !answers.docker.is_empty() {
        text.push_str(
            "# Docker Engine, from DOCKER_HOST: with this file the agent does not read that variable.\n",
        );
        text.extend([format!("docker: {}\n\n", quoted(&answers.docker))]);
    }
    text.push_str("repositories:\n");
    text.extend([format!("  - url: {}\n", quoted(&answers.url))]);
    let mut key = |name: &str, value: &str, default: &str, about: &str| {
        text.extend([format!("    # {about}\n")]);
        match value {
            "" => text.extend([format!("    # {name}: {default}\n")]),
            value => text.extend([format!("    {name}: {}\n", quoted(value))]),
        }
    };
    key("branch", &answers.branch, "main", "Branch to follow. Default: the repository's default branch.");
    key("path", &answers.path, "sites", "Folder to look for applications in. Default: the root.");
    text.push_str(
        "    # Interval between polls. A webhook makes a push visible at once (docs/webhooks.md).\n",
    );
    text.push_str("    # poll: 60s\n");
    text.push_str("    # Remove what disappears from Git, except volumes.\n    # prune: false\n");
    let auth: Vec<String> = [
        ("tokenFile", &answers.token_file),
        ("sshKeyFile", &answers.ssh_key),
        ("knownHosts", &answers.known_hosts),
    ]
    .iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| format!("      {name}: {}\n", quoted(value)))
    .collect();
    text.push_str("    # Credentials are read from files, again at each use.\n");
    if auth.is_empty() {
        text.push_str("    # auth:\n    #   tokenFile: /etc/driftless/git-token\n");
    } else {
        text.push_str("    auth:\n");
        text.push_str(&auth.concat());
    }
    text
}

/// Writes the file for its owner alone, all at once.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = path.with_extension("yaml.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn questions_depend_on_the_url_and_all_answers_are_valid() {
        for (typed, expected, questions) in [
            ("https://git.example.com/a.git\n\nsites\n/etc/token\n", "tokenFile: \"/etc/token\"", 4),
            (
                "git@git.example.com:a.git\nmain\n\n/k\n/h\n",
                "sshKeyFile: \"/k\"\n      knownHosts: \"/h\"",
                5,
            ),
            ("/srv/git/a.git\n\n\n", "# auth:", 3),
        ] {
            let (mut answers, mut shown) = (Answers::default(), Vec::new());
            ask(&mut answers, &mut typed.as_bytes(), &mut shown).unwrap();
            let text = render(&answers);
            assert!(text.contains(expected), "{text}");
            assert_eq!(String::from_utf8(shown).unwrap().matches(": ").count(), questions);
            let settings = Settings::parse("driftless.yaml", &text).unwrap();
            assert_eq!(settings.repositories[0].url.to_string(), answers.url);
        }
        for (host, tls, expected) in [
            ("unix:///run/user/1000/docker.sock", "", "unix:///run/user/1000/docker.sock"),
            ("tcp://127.0.0.1:2375", "", "tcp://127.0.0.1:2375"),
            ("tcp://engine:2376", "1", "unix:///var/run/docker.sock"),
            ("ssh://engine", "", "unix:///var/run/docker.sock"),
            ("", "", "unix:///var/run/docker.sock"),
        ] {
            let environment: Environment = Arc::new(move |name: &str| match name {
                "DOCKER_HOST" => Some(host.to_owned()),
                "DOCKER_TLS_VERIFY" => Some(tls.to_owned()),
                _ => None,
            });
            let url = "/srv/git/a.git".to_owned();
            let text = render(&Answers { url, docker: engine(&environment), ..Answers::default() });
            let settings = Settings::parse("driftless.yaml", &text).unwrap();
            assert_eq!((settings.docker.address.as_str(), settings.docker.tls), (expected, None), "{text}");
        }
        let missing = ask(&mut Answers::default(), &mut "".as_bytes(), &mut Vec::new());
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
