//! Reads variables and files that lie on the host (`valuesFrom`): files, the output of programs, the agent's environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::{ValueOrigin, ValueSource};
use driftless_files::{AppSpec, HostFile, HostValues};
use driftless_git::Lookup;
use driftless_model::{Finding, Format, Location, Mask, Timestamp};
use futures_util::future::join_all;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::AsyncReadExt,
    process::Command,
    time::{sleep, timeout},
};

use crate::{disk_turn::DiskTurn, random::random_key};

/// The largest file, output or variable, in bytes.
const LARGEST: u64 = 1 << 20;

/// The part of the standard error of a program that an error repeats, masked, in bytes.
const LONGEST_ERROR: usize = 200;

/// A file that has changed within this time may be incomplete: `vault … > file` empties it before the program has the values.
const SETTLED: Duration = Duration::from_secs(2);

/// The number of waits for a file that goes on changing. Then it is read as it is.
const MOST_WAITS: usize = 3;

/// The values of all sources of one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadValues(BTreeMap<ValueSource, ReadValue>);

/// The last reading of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReadValue {
    /// As of the last time that it could be read.
    content: Option<Content>,
    /// Why it could not be read the last time.
    error: Option<String>,
}

/// The content of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Variables(HostValues),
    File(Arc<[u8]>),
}

impl Content {
    fn is_empty(&self) -> bool {
        match self {
            Self::Variables(values) => values.text.trim().is_empty(),
            Self::File(bytes) => bytes.trim_ascii().is_empty(),
        }
    }
}

/// Whether several Compose applications of a commit have the sources of their repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    One,
    Several,
}

impl Sharing {
    pub(crate) fn of<'a>(applications: impl IntoIterator<Item = &'a AppSpec>) -> Self {
        let compose = applications.into_iter().filter(|spec| spec.format == Format::Compose);
        if compose.count() > 1 { Self::Several } else { Self::One }
    }
}

/// Reads the sources of one repository, and remembers what it has read.
pub(crate) struct ValueReader {
    environment: Lookup,
    clock: Clock,
    /// Each source once.
    sources: BTreeMap<ValueSource, SourceReading>,
    read: Arc<ReadValues>,
}

/// The reading of one source.
#[derive(Default)]
struct SourceReading {
    /// The time of the last one.
    last: Option<Timestamp>,
    /// The turn at a file, which may be on a network share.
    turn: DiskTurn,
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
    pub(crate) fn give(&self, settings: &config::Repository, sharing: Sharing, spec: &mut AppSpec) {
        let own = settings.applications.iter().find(|own| own.app_name().as_ref() == Some(&spec.name));
        let sources = own.map_or(&settings.values_from, |own| &own.values_from);
        for (index, source) in sources.iter().enumerate() {
            let Some(read) = self.0.get(source) else { continue };
            // Those of the application itself come after those of the repository.
            let is_shared = sharing == Sharing::Several && index < settings.values_from.len();
            let concerns = match &source.path {
                Some(path) => give_file(read, source, path_on_host(path, settings), spec),
                None => give_variables(read, is_shared, spec),
            };
            let Some(error) = read.error.as_ref().filter(|_| concerns) else { continue };
            let place = Location::file(&spec.path);
            spec.findings.push(match &read.content {
                Some(_) => {
                    Finding::warning(place, "valuesFrom", format!("{error}; its last values are used"))
                }
                None => Finding::error(place, "valuesFrom", error.clone())
                    .help("make the source readable, then run `driftless sync`"),
            });
        }
    }
}

/// The paths of the sources that a repository has of its own or that one of its applications has. Those of the agent may be for another
/// repository.
pub(crate) fn own_paths(settings: &config::Repository) -> BTreeSet<String> {
    let of_applications = settings.applications.iter().map(|application| &application.values_from);
    let all = of_applications.chain([&settings.values_from]);
    let own = all.flat_map(|sources| sources.iter().skip(settings.values_of_agent));
    own.filter_map(|source| source.path.as_ref()).map(|path| path_on_host(path, settings)).collect()
}

fn path_on_host(path: &str, settings: &config::Repository) -> String {
    path.replace(config::HOST_PLACEHOLDER, &settings.host.name)
}

/// Returns whether the application has these variables.
fn give_variables(read: &ReadValue, is_shared: bool, spec: &mut AppSpec) -> bool {
    if let (Some(Content::Variables(values)), Format::Compose) = (&read.content, spec.format) {
        spec.host_values.push(HostValues { is_shared, ..values.clone() });
    }
    spec.format == Format::Compose
}

/// Returns whether the file is in the folder of the application. Others may read it, too; then they meet the error.
fn give_file(read: &ReadValue, source: &ValueSource, path: String, spec: &mut AppSpec) -> bool {
    let content = match (&read.content, &read.error) {
        (Some(Content::File(bytes)), _) => Ok(Arc::clone(bytes)),
        (_, Some(error)) => Err(error.clone()),
        (_, None) => return false,
    };
    let is_own = spec.has_below(&path);
    spec.host_files.push(HostFile { path, source: shown(source), content, is_secret: source.secret });
    is_own
}

impl ValueReader {
    pub(crate) fn new(settings: &config::Repository, environment: Lookup, clock: Clock) -> Self {
        let own = settings.applications.iter().flat_map(|application| &application.values_from);
        let sources = settings.values_from.iter().chain(own);
        let sources = sources.map(|source| (source.clone(), SourceReading::default())).collect();
        Self { environment, clock, sources, read: Arc::default() }
    }

    /// The values of the last reading.
    pub(crate) fn values(&self) -> Arc<ReadValues> {
        Arc::clone(&self.read)
    }

    /// Reads the sources that are due: files and variables always, programs after their interval. All is due if `is_requested`.
    pub(crate) async fn read(&mut self, is_requested: bool) {
        let now = self.clock.now();
        let mut due = Vec::new();
        for (source, reading) in &mut self.sources {
            let is_program = matches!(source.origin, ValueOrigin::Exec(_));
            let is_due = reading.last.is_none_or(|last| !last.is_recent(source.interval, now));
            if !is_program || is_due || is_requested {
                reading.last = Some(now);
                due.push((source as &ValueSource, &reading.turn));
            }
        }
        // At the same time: the slowest program, and not the sum of all, delays the fetch.
        let (environment, clock) = (&self.environment, self.clock);
        let contents = join_all(due.into_iter().map(|(source, turn)| async move {
            (source, read_in_time(source, turn, environment, clock).await)
        }));
        let mut all = ReadValues::clone(&self.read);
        for (source, content) in contents.await {
            let read = all.0.entry(source.clone()).or_default();
            let had_values = read.content.as_ref().is_some_and(|content| !content.is_empty());
            // The writer is late or has failed. Containers without their values would not work.
            let content = match content {
                Ok(content) if had_values && content.is_empty() => Err("it is empty".to_owned()),
                other => other,
            };
            match content {
                Ok(content) => *read = ReadValue { content: Some(content), error: None },
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

/// Reads a source within its time limit, also a file on a server that does not answer.
async fn read_in_time(
    source: &ValueSource,
    turn: &DiskTurn,
    environment: &Lookup,
    clock: Clock,
) -> Result<Content, String> {
    let late = |_| format!("it did not end within {} s", source.timeout.as_secs());
    timeout(source.timeout, read_source(source, turn, environment, clock)).await.map_err(late)?
}

async fn read_source(
    source: &ValueSource,
    turn: &DiskTurn,
    environment: &Lookup,
    clock: Clock,
) -> Result<Content, String> {
    let bytes = match &source.origin {
        ValueOrigin::File(path) => turn.take(read_file(path.clone(), clock)).await?,
        ValueOrigin::Exec(words) => run(words).await?,
        ValueOrigin::Environment(name) => {
            environment(name).ok_or_else(|| "it is not set".to_owned())?.into_bytes()
        }
    };
    if source.path.is_some() {
        return Ok(Content::File(bytes.into()));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let name = source.name.clone();
    let value = if name.is_some() { without_line_end(&text) } else { &text };
    Ok(Content::Variables(HostValues {
        source: shown(source),
        name,
        text: value.into(),
        is_shared: false,
        is_secret: source.secret,
    }))
}

async fn read_file(path: PathBuf, clock: Clock) -> Result<Vec<u8>, String> {
    settle(&path, clock).await?;
    bounded(tokio::fs::File::open(&path).await.map_err(|error| error.to_string())?).await
}

/// Waits until a file has not changed for a moment. Refuses what is not a file before it is opened: the opening of a named pipe would
/// wait for a writer.
async fn settle(path: &Path, clock: Clock) -> Result<(), String> {
    for _ in 0..MOST_WAITS {
        let found = tokio::fs::metadata(path).await.map_err(|error| error.to_string())?;
        if !found.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        let changed = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let changed = Timestamp::default().after(changed.unwrap_or_default());
        let now = clock.now();
        if !changed.is_recent(SETTLED, now) {
            break;
        }
        sleep(SETTLED.saturating_sub(now.since(changed))).await;
    }
    Ok(())
}

/// The whole text is one value: the line end of a program's output, or of a file that an editor of Windows has written, is no part of it.
fn without_line_end(text: &str) -> &str {
    text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line))
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
///
/// The program is killed, with all that it has started, when this is dropped.
async fn run(words: &[String]) -> Result<Vec<u8>, String> {
    let (program, arguments) = words.split_first().ok_or("no program is given")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut group = ProcessGroup(child.id());
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("it has no output".to_owned());
    };
    let (output, errors) = tokio::join!(bounded(output), bounded(errors));
    let output = output?;
    let status = child.wait().await.map_err(|error| error.to_string())?;
    // It has ended, and its number may soon be that of another process.
    group.0 = None;
    if !status.success() {
        return Err(format!("it ended with {status}: {}", shown_errors(&errors.unwrap_or_default())));
    }
    Ok(output)
}

/// The beginning of a standard error. A program may print what it was given, such as a token in a URL.
fn shown_errors(errors: &[u8]) -> String {
    // Masked before it is cut: a part of a URL does not show that it contains a token.
    let mut masked = Mask::new(random_key()).message(String::from_utf8_lossy(errors).trim());
    masked.truncate(masked.floor_char_boundary(LONGEST_ERROR));
    masked
}

/// The process group of a program that has not ended. It is killed when this is dropped.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id
            && let Err(error) = killpg(Pid::from_raw(id), Signal::SIGKILL)
        {
            tracing::warn!(%error, "could not kill a program of valuesFrom");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, time::Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn file_that_has_just_changed_is_read_a_moment_later() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let changed = file.as_file().metadata().unwrap().modified().unwrap();
        let changed = Timestamp::default().after(changed.duration_since(UNIX_EPOCH).unwrap());
        let hour = Duration::from_hours(1);
        for (now, waits) in [(changed, true), (changed.after(hour), false), (changed.before(hour), false)] {
            let began = Instant::now();
            settle(file.path(), Clock::starting_at(now)).await.unwrap();
            let waited = began.elapsed();
            assert!((waited >= SETTLED) == waits && waited < 2 * SETTLED, "{now}: {waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn file_is_not_read_while_an_earlier_reading_hangs() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "PASSWORD=a\n").unwrap();
        let text = format!(
            "repositories: [{{url: 'https://git.example/infra.git', valuesFrom: [{{file: '{}'}}]}}]\n",
            file.path().display()
        );
        let settings = config::Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
        let clock = Clock::starting_at(Timestamp(1_800_000_000_000));
        let mut reader = ValueReader::new(&settings, Arc::new(|_| None), clock);
        let turn = reader.sources.values().next().unwrap().turn.clone();
        let (answered, answer) = oneshot::channel();
        let hanging = turn.take(async move { answer.await.map_err(|_| "no answer".to_owned()) });
        timeout(Duration::from_secs(30), hanging).await.unwrap_err();
        reader.read(false).await;
        let values = reader.values();
        let errors: Vec<&String> = values.errors().collect();
        assert!(matches!(*errors, [error] if error.contains("did not end within 30 s")), "{errors:?}");
        answered.send(()).unwrap();
        reader.read(false).await;
        assert_eq!(reader.values().errors().count(), 0);
    }

    #[test]
    fn source_of_the_repository_is_shared_by_its_applications() {
        let text = "repositories:\n- url: https://git.example/infra.git\n  valuesFrom: [{env: A}]\n  \
                    applications: [{path: shop, valuesFrom: [{env: B}]}]\n";
        let settings = config::Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
        let mut read = ReadValues::default();
        for source in &settings.applications[0].values_from {
            let values = HostValues {
                source: shown(source),
                name: None,
                text: "".into(),
                is_shared: false,
                is_secret: true,
            };
            let content = Some(Content::Variables(values));
            read.0.insert(source.clone(), ReadValue { content, error: None });
        }
        let shop = AppSpec::compose("shop", &["shop/compose.yaml"]);
        let other = AppSpec::kubernetes("other", &["other/web.yaml"]);
        let shared = |others: &[&AppSpec]| {
            let mut spec = shop.clone();
            read.give(&settings, Sharing::of(others.iter().copied().chain([&shop])), &mut spec);
            spec.host_values.iter().map(|values| values.is_shared).collect::<Vec<_>>()
        };
        assert_eq!(shared(&[]), [false, false]);
        assert_eq!(shared(&[&other]), [false, false], "it has no variables");
        assert_eq!(shared(&[&AppSpec::compose("two", &["two/compose.yaml"])]), [true, false]);
    }

    #[test]
    fn line_end_is_no_part_of_a_value() {
        for (text, value) in [
            ("secret", "secret"),
            ("secret\n", "secret"),
            ("secret\r\n", "secret"),
            ("one\r\ntwo\r\n", "one\r\ntwo"),
            ("secret\n\n", "secret\n"),
            ("secret\r", "secret\r"),
            ("\n", ""),
        ] {
            assert_eq!(without_line_end(text), value, "{text:?}");
        }
    }

    #[test]
    fn errors_of_a_program_are_masked_before_they_are_cut() {
        for length in 150..LONGEST_ERROR {
            let text =
                format!("{} https://bot:hunter2hunter2@git.example/x.git failed", "é".repeat(length / 2));
            let shown = shown_errors(text.as_bytes());
            assert!(shown.len() <= LONGEST_ERROR && !shown.contains("hunter"), "{shown}");
        }
        assert_eq!(shown_errors(b"locked\n"), "locked");
    }
}
