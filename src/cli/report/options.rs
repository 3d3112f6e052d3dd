//! Options that `drift` and `preview` share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::selection::Selection;
use crate::cli::options::parse_span;
use driftless_report::{Selector, Type};

/// Common options of `drift` and `preview`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReportArgs {
    /// Output format; with =FILE written to a file instead of standard output. Can be given several times.
    #[arg(short, long, value_name = "FORMAT[=FILE]", value_parser = parse_output, default_value = "text")]
    pub(in crate::cli) output: Vec<ReportOutput>,
    /// Only this application. Can be given several times.
    #[arg(long, value_name = "NAME", help_heading = "Selection")]
    pub(in crate::cli) app: Vec<String>,
    /// Only objects with these labels in their manifest: NAME=VALUE, NAME!=VALUE, NAME, !NAME.
    #[arg(short = 'l', long, value_name = "LABELS", help_heading = "Selection", value_parser = parse_selector)]
    pub(in crate::cli) selector: Option<Selector>,
    /// Only applications in this folder of the repository.
    #[arg(long, value_name = "FOLDER", help_heading = "Selection")]
    pub(in crate::cli) path: Option<String>,
    /// File with differences that do not count, one per line: `APP KIND/NAME [PATH]`; `*` matches anything.
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(in crate::cli) ignore_file: Option<PathBuf>,
    /// Types of differences that decide the exit code; all are reported [default: all].
    /// In a preview also `any`: errors that the base has too
    #[arg(long, value_name = "TYPE", value_enum, value_delimiter = ',', help_heading = "Exit code")]
    pub(in crate::cli) fail_on: Vec<FailOn>,
    /// Exit codes like terraform: 0 no difference, 1 error, 2 differences.
    #[arg(long, conflicts_with_all = ["drift_exit_code", "exit_zero"], help_heading = "Exit code")]
    pub(in crate::cli) detailed_exitcode: bool,
    /// Exit code for differences instead of 1.
    #[arg(long, value_name = "N", conflicts_with = "exit_zero", help_heading = "Exit code",
        value_parser = parse_exit_code)]
    pub(in crate::cli) drift_exit_code: Option<u8>,
    /// Exit with 0 if there are differences; errors still exit with 2.
    #[arg(long, help_heading = "Exit code")]
    pub(in crate::cli) exit_zero: bool,
    /// Write the report to the pull or merge request of this CI job, as one comment that is updated in place, and set
    /// the status of its commit. Forge, request and token come from the CI's environment.
    #[arg(long, help_heading = "Forge")]
    pub(in crate::cli) post: bool,
    /// Name of the comment, to keep several reports on one request apart.
    #[arg(long, value_name = "NAME", default_value = "default", requires = "post", help_heading = "Forge")]
    pub(in crate::cli) post_as: String,
    /// Maximum time. An application that has not answered by then is an error.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_span)]
    pub(in crate::cli) timeout: std::time::Duration,
}

/// Access to a repository that is given by its URL.
#[derive(Debug, Args)]
#[command(next_help_heading = "Git server")]
pub(in crate::cli) struct GitArgs {
    /// User name for the Git server [default: git]
    #[arg(long, value_name = "USER")]
    pub(in crate::cli) git_username: Option<String>,
    /// File with the token or password for the Git server.
    #[arg(long, value_name = "FILE", conflicts_with = "git_password_env")]
    pub(in crate::cli) git_password_file: Option<PathBuf>,
    /// Environment variable with the token or password for the Git server.
    #[arg(long, value_name = "VARIABLE")]
    pub(in crate::cli) git_password_env: Option<String>,
    /// Private key for ssh.
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) ssh_key: Option<PathBuf>,
    /// File with the keys of known ssh servers.
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) known_hosts: Option<PathBuf>,
    /// Additional certificate authorities for https, as a PEM file.
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) ca_file: Option<PathBuf>,
}

impl ReportArgs {
    /// The applications that the options select.
    pub(in crate::cli) fn selection(&self) -> Selection {
        Selection { apps: self.app.clone(), path: self.path.clone() }
    }
}

/// One output of the report: its format and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ReportOutput {
    pub(in crate::cli) format: ReportFormat,
    /// Standard output if `None`.
    pub(in crate::cli) file: Option<PathBuf>,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ReportFormat {
    Text,
    Diff,
    Json,
    Ndjson,
    Markdown,
    /// Annotations on the lines of a pull request, and the Markdown in the summary of the step.
    Github,
    Junit,
    Sarif,
}

/// Types of differences and of errors for `--fail-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum FailOn {
    Missing,
    Extra,
    Modified,
    Image,
    Stopped,
    Added,
    Removed,
    Kept,
    /// Preview: errors that the base does not have. They always decide.
    New,
    /// Preview: also errors that the base has too.
    Any,
}

impl FailOn {
    pub(in crate::cli) fn types(self) -> Vec<Type> {
        match self {
            // The counts of the report do the same: another image or state is a modification too.
            Self::Modified => vec![Type::Modified, Type::Image, Type::Stopped],
            Self::Missing => vec![Type::Missing],
            Self::Extra => vec![Type::Extra],
            Self::Image => vec![Type::Image],
            Self::Stopped => vec![Type::Stopped],
            Self::Added => vec![Type::Added],
            Self::Removed => vec![Type::Removed],
            Self::Kept => vec![Type::Kept],
            Self::New | Self::Any => Vec::new(),
        }
    }
}

fn parse_output(text: &str) -> Result<ReportOutput, String> {
    let (format, file) = match text.split_once('=') {
        Some((_, "")) => return Err("a file name is missing after `=`".to_owned()),
        Some((format, file)) => (format, Some(PathBuf::from(file))),
        None => (text, None),
    };
    let format = ReportFormat::from_str(format, false).map_err(|_| {
        let known: Vec<String> = ReportFormat::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .map(|it| it.get_name().to_owned())
            .collect();
        format!("unknown format `{format}`; the formats are {}", known.join(", "))
    })?;
    Ok(ReportOutput { format, file })
}

fn parse_selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|it| it.to_string())
}

fn parse_exit_code(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(2) => {
            Err("2 is the exit code for errors; use --detailed-exitcode for 2 as differences".to_owned())
        }
        Ok(code @ 0..=125) => Ok(code),
        Ok(_) | Err(_) => Err("the exit code must be a number from 0 to 125".to_owned()),
    }
}
