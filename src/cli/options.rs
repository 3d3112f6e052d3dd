//! Options, output formats and value parsers that several commands share.

use std::{ffi::OsStr, path::PathBuf};

use clap::{
    Args, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser},
    error::ErrorKind,
};

const CONNECTION: &str = "Connection to the agent";

/// Address and token of the agent. Environment variables and defaults apply when an option is missing.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Address of the agent, http://, https:// or unix:// [default: its socket or port 8484 on this machine]
    #[arg(long, value_name = "URL", help_heading = CONNECTION)]
    pub(super) server: Option<String>,
    /// File with the agent's token.
    #[arg(long, value_name = "FILE", help_heading = CONNECTION, value_parser = file_or_none())]
    pub(super) token_file: Option<PathBuf>,
    /// Certificate authorities of the agent, as a PEM file, instead of the system's.
    #[arg(long, value_name = "FILE", help_heading = CONNECTION, value_parser = file_or_none())]
    pub(super) server_ca_file: Option<PathBuf>,
}

/// Parses a path, which may be empty: then there is no file, also if the environment names one.
pub(super) fn file_or_none() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Output format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Aligned columns.
    Table,
    /// Columns and more details.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Output format: text for people, JSON for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TextOrJson {
    Text,
    Json,
}

/// Output format of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum YamlOrJson {
    Yaml,
    Json,
}

/// Reads `NAME=VALUE`.
pub(super) fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}

/// Reads the text of an option that may have a secret in it: the error does not repeat the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretParser<T>(pub(super) fn(&str) -> Result<T, String>);

impl<T: Clone + Send + Sync + 'static> TypedValueParser for SecretParser<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&clap::Arg>,
        text: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let parsed = text.to_str().ok_or_else(|| "write it in UTF-8".to_owned()).and_then(self.0);
        parsed.map_err(|advice| {
            let option = option.map_or_else(|| "an option".to_owned(), ToString::to_string);
            let message = format!("invalid value for '{option}': {advice}");
            command.clone().error(ErrorKind::ValueValidation, message)
        })
    }
}

/// Reads a duration such as `90s`, `5m` or `2h`.
pub(super) fn parse_span(text: &str) -> Result<std::time::Duration, String> {
    driftless_model::parse_duration(text)
}
