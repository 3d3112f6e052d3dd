//! `driftless completion` and `driftless man`: what a package installs besides the program.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use clap_complete::Shell;

use super::{
    context::Verdict,
    error::{CommandError, Error as CliError},
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

pub(super) fn completion(args: &CompletionArgs, mut command: clap::Command) -> Result<Verdict, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "driftless", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(Verdict::Yes)
}

pub(super) fn man(args: &ManArgs, command: clap::Command) -> Result<Verdict, CliError> {
    let fail = |source| Error::Write { folder: args.folder.clone(), source };
    write_pages(command, &args.folder).map_err(fail)?;
    Ok(Verdict::Yes)
}

fn write_pages(mut command: clap::Command, folder: &Path) -> io::Result<()> {
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    command.build();
    clap_mangen::generate_to(command, folder)
}
