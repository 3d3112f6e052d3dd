//! Reads variables that lie on the host (`valuesFrom`): files, the output of programs, the agent's environment.

use std::{collections::BTreeMap, process::Stdio, sync::Arc, time::Duration};

use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::{ValueOrigin, ValueSource};
use driftless_files::{AppSpec, HostValues};
use driftless_git::Lookup;
use driftless_model::{Finding, Format, Location, Timestamp};
use tokio::{io::AsyncReadExt, process::Command, time::timeout};

/// The largest file, output or variable, in bytes.
const LARGEST: u64 = 1 << 20;

/// The part of the standard error of a program that an error repeats, in bytes.
const LONGEST_ERROR: usize = 200;

/// The values of all sources of one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadValues(BTreeMap<ValueSource, ReadValue>);

/// The last reading of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReadValue {
    /// As of the last time that it could be read.
    values: Option<HostValues>,
    /// Why it could not be read the last time.
    error: Option<String>,
}

/// Reads the sources of one repository, and remembers what it has read.
pub(crate) struct ValueReader {
    environment: Lookup,
    clock: Clock,
    /// Each source once, with the time of its last reading.
    sources: BTreeMap<ValueSource, Option<Timestamp>>,
    read: Arc<ReadValues>,
}

impl ReadValues {
    /// The number of sources.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The errors of the sources that could not be read.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &String> {
        self.0.values().filter_map(|read| read.error.as_ref())
    }

    /// Gives an application its values. A source that was never read is an error, because the application would be deployed
    /// with empty values. One that could be read before is a warning.
    pub(crate) fn give(&self, settings: &config::Repository, spec: &mut AppSpec) {
        if spec.format != Format::Compose {
            return;
        }
        let own = settings.applications.iter().find(|own| own.app_name().as_ref() == Some(&spec.name));
        for source in own.map_or(&settings.values_from, |own| &own.values_from) {
            let Some(read) = self.0.get(source) else { continue };
            spec.host_values.extend(read.values.clone());
            let Some(error) = &read.error else { continue };
            let place = Location::file(&spec.path);
            spec.findings.push(match &read.values {
                Some(_) => {
                    Finding::warning(place, "valuesFrom", format!("{error}; its last values are used"))
                }
                None => Finding::error(place, "valuesFrom", error.clone())
                    .help("make the source readable, then run `driftless sync`"),
            });
        }
    }
}

impl ValueReader {
    pub(crate) fn new(settings: &config::Repository, environment: Lookup, clock: Clock) -> Self {
        let own = settings.applications.iter().flat_map(|application| &application.values_from);
        let sources = settings.values_from.iter().chain(own).map(|source| (source.clone(), None)).collect();
        Self { environment, clock, sources, read: Arc::default() }
    }

    /// The values of the last reading.
    pub(crate) fn values(&self) -> Arc<ReadValues> {
        Arc::clone(&self.read)
    }

    /// Reads the sources that are due: files and variables always, programs after their interval. All is due if `is_requested`.
    pub(crate) async fn read(&mut self, is_requested: bool) {
        let now = self.clock.now();
        let mut all = ReadValues::clone(&self.read);
        for (source, last) in &mut self.sources {
            let is_program = matches!(source.origin, ValueOrigin::Exec(_));
            let is_due = last.is_none_or(|last| now >= last.after(source.interval));
            if is_program && !is_due && !is_requested {
                continue;
            }
            *last = Some(now);
            let read = all.0.entry(source.clone()).or_default();
            match read_source(source, &self.environment).await {
                Ok(text) => {
                    let (name, is_secret) = (source.name.clone(), source.secret);
                    let values = HostValues { source: shown(source), name, text: text.into(), is_secret };
                    *read = ReadValue { values: Some(values), error: None };
                }
                Err(why) => {
                    let error = format!("could not read {}: {why}", shown(source));
                    if read.error.as_ref() != Some(&error) {
                        tracing::warn!(error, "could not read host values");
                    }
                    read.error = Some(error);
                }
            }
        }
        if *self.read != all {
            self.read = Arc::new(all);
        }
    }
}

/// The name of a source: the path, the program without its arguments, or the variable.
fn shown(source: &ValueSource) -> String {
    match &source.origin {
        ValueOrigin::File(path) => path.display().to_string(),
        ValueOrigin::Exec(words) => format!("the output of `{}`", words.first().map_or("", String::as_str)),
        ValueOrigin::Environment(name) => format!("the environment variable `{name}`"),
    }
}

async fn read_source(source: &ValueSource, environment: &Lookup) -> Result<String, String> {
    let bytes = match &source.origin {
        ValueOrigin::File(path) => {
            let file = tokio::fs::File::open(path).await.map_err(|error| error.to_string())?;
            let is_file = file.metadata().await.is_ok_and(|metadata| metadata.is_file());
            if !is_file {
                return Err("it is not a regular file".to_owned());
            }
            bounded(file).await?
        }
        ValueOrigin::Exec(words) => run(words, source.timeout).await?,
        ValueOrigin::Environment(name) => {
            environment(name).ok_or_else(|| "it is not set".to_owned())?.into_bytes()
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    // The whole text is one value: the line end of a program's output is no part of it.
    let is_value = source.name.is_some();
    Ok(if is_value { text.strip_suffix('\n').map_or(text.clone(), str::to_owned) } else { text })
}

async fn bounded(from: impl tokio::io::AsyncRead + Unpin) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    from.take(LARGEST + 1).read_to_end(&mut bytes).await.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err("it is larger than 1 MiB".to_owned());
    }
    Ok(bytes)
}

/// The standard output of a program. Its standard error is part of the error if it fails.
async fn run(words: &[String], limit: Duration) -> Result<Vec<u8>, String> {
    let (program, arguments) = words.split_first().ok_or("no program is given")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("it has no output".to_owned());
    };
    let whole = async {
        let (output, errors) = tokio::join!(bounded(output), bounded(errors));
        let output = output?;
        let status = child.wait().await.map_err(|error| error.to_string())?;
        if !status.success() {
            let errors = errors.unwrap_or_default();
            let errors = String::from_utf8_lossy(errors.get(..LONGEST_ERROR).unwrap_or(&errors)).into_owned();
            return Err(format!("it ended with {status}: {}", errors.trim()));
        }
        Ok(output)
    };
    timeout(limit, whole).await.map_err(|_| format!("it did not end within {} s", limit.as_secs()))?
}
