//! `driftless completion` and `driftless man`: what a package installs besides the program. `driftless names` is for the
//! completions.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use clap_complete::Shell;
use driftless_model::Application;
use tokio::time::timeout;

use super::{
    client::Client,
    context::{Context, ExitStatus},
    error::{CommandError, Error as CliError},
    options::ServerArgs,
    output::print,
};

/// Print the completions of a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless completion bash > /etc/bash_completion.d/driftless
  driftless completion zsh > ~/.zfunc/_driftless")]
pub(super) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(super) shell: Shell,
}

/// Write the manual pages of all commands into a folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless man /usr/local/share/man/man1")]
pub(super) struct ManArgs {
    /// The folder. It must exist.
    #[arg(value_name = "FOLDER")]
    pub(super) folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("could not write the manual pages to {folder}")]
    Write {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        Some("name a folder that exists and that you may write to".to_owned())
    }
}

pub(super) fn completion(args: &CompletionArgs, mut command: clap::Command) -> Result<ExitStatus, CliError> {
    let commands = commands_with_applications(&command);
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "driftless", &mut text);
    print(&with_names(args.shell, &String::from_utf8_lossy(&text), &commands))?;
    Ok(ExitStatus::Success)
}

/// The commands whose arguments are names of applications.
fn commands_with_applications(command: &clap::Command) -> Vec<String> {
    let is_names = |argument: &clap::Arg| argument.get_id() == "app" || argument.get_id() == "apps";
    let takes_names = |command: &&clap::Command| command.get_positionals().any(is_names);
    command.get_subcommands().filter(takes_names).map(|command| command.get_name().to_owned()).collect()
}

/// The script of a shell, which also completes names of applications with those that the agent knows. Scripts of other
/// shells than bash, zsh and fish stay as they are.
fn with_names(shell: Shell, script: &str, commands: &[String]) -> String {
    match shell {
        Shell::Bash => format!("{script}{}", BASH_NAMES.replace("COMMANDS", &commands.join("|"))),
        Shell::Zsh => {
            let is_names = |line: &str| {
                let line = line.trim_start().trim_start_matches(['\'', '*']);
                [":app --", "::app --", ":apps --", "::apps --"].iter().any(|start| line.starts_with(start))
            };
            let name = |line: &str| match line.rsplit_once(":_default'") {
                Some((start, end)) if is_names(line) => format!("{start}:_driftless_names'{end}\n"),
                Some(_) | None => format!("{line}\n"),
            };
            let text: String = script.lines().map(name).collect();
            match text.split_once('\n') {
                // `#compdef` must be the first line.
                Some((first, rest)) => format!("{first}\n{ZSH_NAMES}{rest}"),
                None => text,
            }
        }
        Shell::Fish => format!(
            "{script}complete -c driftless -n \"__fish_seen_subcommand_from {}\" -f -a \"(driftless names 2>/dev/null)\"\n",
            commands.join(" ")
        ),
        _ => script.to_owned(),
    }
}

const BASH_NAMES: &str = r#"
# Names of applications, which the agent knows.
_driftless_with_names() {
    _driftless "$@"
    case "${COMP_WORDS[1]}" in
        COMMANDS)
            [[ "$2" == -* || "$COMP_CWORD" -lt 2 || "$3" == --* ]] && return
            COMPREPLY+=($(compgen -W "$(driftless names 2>/dev/null)" -- "$2"))
            ;;
    esac
}
complete -F _driftless_with_names -o bashdefault -o default driftless
"#;

const ZSH_NAMES: &str = r#"
# Names of applications, which the agent knows.
_driftless_names() {
    local -a names
    names=(${(f)"$(driftless names 2>/dev/null)"})
    compadd -a names
}
"#;

/// Print the names of all applications, for completions.
#[derive(Debug, Args)]
pub(super) struct NamesArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// The time in which a completion is still useful.
const NAMES_WITHIN: Duration = Duration::from_secs(2);

pub(super) async fn names(args: &NamesArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let Ok(applications) =
        timeout(NAMES_WITHIN, client.get::<Vec<Application>>("/api/v1/applications")).await
    else {
        return Ok(ExitStatus::Negative);
    };
    let mut text = String::new();
    for application in applications? {
        text.push_str(application.name.as_str());
        text.push('\n');
    }
    print(&text)?;
    Ok(ExitStatus::Success)
}

pub(super) fn man(args: &ManArgs, command: clap::Command) -> Result<ExitStatus, CliError> {
    let fail = |source| Error::Write { folder: args.folder.clone(), source };
    write_pages(command, &args.folder).map_err(fail)?;
    Ok(ExitStatus::Success)
}

fn write_pages(mut command: clap::Command, folder: &Path) -> io::Result<()> {
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    command.build();
    clap_mangen::generate_to(command, folder)
}
