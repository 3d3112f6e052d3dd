//! The format of the log: text or JSON with the same fields. A line has the fields of the round and of the application that it
//! is about. A warning or error that repeats is counted instead of printed each time.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::{JsonFields, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::{
    run::LogFormat,
    screen::{Colours, Paint},
};

/// The first pause in which a repeated line is only counted. It doubles as long as the line repeats.
const FIRST_PAUSE: Duration = Duration::from_mins(1);

/// The longest pause. A line that was not seen for as long is new again.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The most lines that are remembered.
const MOST_LINES: usize = 512;

/// Fields that differ each time although the line says the same.
const COUNTERS: [&str; 5] = ["attempt", "next_try", "round", "took", "seconds"];

/// The fields that stand before the others in a line of text.
const FIRST: [&str; 4] = ["app", "revision", "round", "actor"];

/// A format that leaves out warnings and errors that repeat, and writes their number with the next one: `repeated=12`.
///
/// The subscriber formats fields with [`JsonFields`], so that those of a span are known by name.
pub struct LogLine {
    format: LogFormat,
    repeats: Mutex<Repeats>,
    also: Option<LineTaker>,
}

/// Takes what a line that is written consists of: where it is from, its message and its fields.
pub type LineTaker = Box<dyn Fn(&'static Metadata<'static>, &str, &Map<String, Value>) + Send + Sync>;

impl LogLine {
    /// Lines in this form.
    pub fn new(format: LogFormat) -> Self {
        Self { format, repeats: Mutex::default(), also: None }
    }

    /// Gives each line that is written to this, too.
    #[must_use]
    pub fn also(mut self, taker: Option<LineTaker>) -> Self {
        self.also = taker;
        self
    }
}

impl<S> FormatEvent<S, JsonFields> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = fields(context, event)?;
        let metadata = event.metadata();
        if *metadata.level() <= Level::WARN {
            let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
            let left_out = repeats.note(key(metadata, &fields), Instant::now());
            drop(repeats);
            match left_out {
                None => return Ok(()),
                Some(0) => {}
                Some(count) => drop(fields.insert("repeated".to_owned(), count.into())),
            }
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let message = match fields.remove("message") {
            Some(Value::String(message)) => message,
            Some(other) => other.to_string(),
            // Some libraries name their events instead.
            None => match fields.remove("name") {
                Some(Value::String(name)) => name,
                _ => String::new(),
            },
        };
        if let Some(taker) = &self.also {
            taker(metadata, &message, &fields);
        }
        match self.format {
            LogFormat::Text => {
                let colours = if writer.has_ansi_escapes() { Colours::On } else { Colours::Off };
                writeln!(writer, "{}", text(&time, *metadata.level(), &message, &fields, colours))
            }
            LogFormat::Json => {
                writeln!(writer, "{}", object(&time, *metadata.level(), &message, &fields))
            }
        }
    }
}

/// The fields of a line and of the spans around it. The inner ones win; an empty one is left out.
fn fields<S>(
    context: &FmtContext<'_, S, JsonFields>,
    event: &Event<'_>,
) -> Result<Map<String, Value>, fmt::Error>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let mut own = String::new();
    context.format_fields(Writer::new(&mut own), event)?;
    let mut fields: Map<String, Value> = serde_json::from_str(&own).map_err(|_| fmt::Error)?;
    let mut span = context.parent_span();
    while let Some(at) = span {
        let outer = at.extensions().get::<FormattedFields<JsonFields>>().map(|outer| outer.fields.clone());
        let outer: Map<String, Value> =
            outer.and_then(|outer| serde_json::from_str(&outer).ok()).unwrap_or_default();
        for (name, value) in outer {
            fields.entry(name).or_insert(value);
        }
        span = at.parent();
    }
    fields.retain(|_, value| value.as_str() != Some(""));
    Ok(fields)
}

/// `2026-01-01T12:00:00.000000Z  INFO step done app=shop revision=4 round=12 action="create shop-web-1"`
fn text(time: &str, level: Level, message: &str, fields: &Map<String, Value>, colours: Colours) -> String {
    let paint = match level {
        Level::ERROR => Paint::Bad,
        Level::WARN => Paint::Warn,
        Level::INFO => Paint::Good,
        Level::DEBUG | Level::TRACE => Paint::Soft,
    };
    let level = colours.paint(paint, &format!("{level:>5}"));
    let mut line = format!("{} {level} {}", colours.paint(Paint::Soft, time), plain_line(message));
    let first = FIRST.iter().filter_map(|name| fields.get_key_value(*name));
    let rest = fields.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
    for (name, value) in first.chain(rest) {
        let value = match value {
            // A value that is not one word is quoted, and so are the characters in it that would end the line.
            Value::String(text) if text.chars().all(is_of_a_word) => text.clone(),
            other => other.to_string(),
        };
        line.push(' ');
        line.push_str(&colours.paint(Paint::Soft, name));
        line.push('=');
        line.push_str(&value);
    }
    line
}

fn is_of_a_word(letter: char) -> bool {
    !letter.is_whitespace() && letter != '"' && letter != '=' && !driftless_model::is_unprintable(letter)
}

/// A message in one line.
fn plain_line(message: &str) -> String {
    super::screen::plain(message).replace('\n', " ")
}

/// One line of JSON: time, level and message first.
fn object(time: &str, level: Level, message: &str, fields: &Map<String, Value>) -> String {
    let level = level.as_str();
    let head = [("timestamp", time), ("level", level), ("message", message)];
    let head = head.map(|(name, value)| format!("\"{name}\":{}", Value::from(value)));
    let rest = fields.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())));
    format!("{{{}}}", head.into_iter().chain(rest).collect::<Vec<_>>().join(","))
}

/// Identifies what a line says: its place in the program and its fields, without counters.
fn key(place: &Metadata<'_>, fields: &Map<String, Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (place.file(), place.line()).hash(&mut hasher);
    for (name, value) in fields.iter().filter(|(name, _)| !COUNTERS.contains(&name.as_str())) {
        (name, value.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}

/// The lines that were printed.
#[derive(Default)]
struct Repeats(BTreeMap<u64, Line>);

/// One line.
struct Line {
    /// From then on it is printed again.
    next: Instant,
    pause: Duration,
    left_out: u64,
    last: Instant,
}

impl Repeats {
    /// Notes a line. `None`: it is left out; else how many were left out since it was printed last.
    fn note(&mut self, key: u64, now: Instant) -> Option<u64> {
        if let Some(line) = self.0.get_mut(&key) {
            let is_new = now.duration_since(line.last) >= LONGEST_PAUSE;
            line.last = now;
            if now < line.next {
                line.left_out += 1;
                return None;
            }
            line.pause = if is_new { FIRST_PAUSE } else { (line.pause * 2).min(LONGEST_PAUSE) };
            line.next = now + line.pause;
            return Some(std::mem::take(&mut line.left_out));
        }
        if self.0.len() >= MOST_LINES
            && let Some(oldest) = self.0.iter().min_by_key(|(_, line)| line.last).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(key, Line { next: now + FIRST_PAUSE, pause: FIRST_PAUSE, left_out: 0, last: now });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use tokio::time::advance;
    use tracing::subscriber::DefaultGuard;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        fn of(format: LogFormat) -> (Self, DefaultGuard) {
            let lines = Self::default();
            let subscriber = tracing_subscriber::fmt()
                .with_ansi(false)
                .fmt_fields(JsonFields::new())
                .event_format(LogLine::new(format))
                .with_writer(lines.clone());
            let guard = tracing::subscriber::set_default(subscriber.finish());
            (lines, guard)
        }

        /// The lines without the time.
        fn text(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| line.split_once("Z ").unwrap().1.trim().to_owned()).collect()
        }

        fn json(&self) -> Vec<Value> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn fail(app: &str, attempt: u32) {
        tracing::warn!(app, attempt, "the round failed");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_warnings_are_counted() {
        let (lines, _guard) = Lines::of(LogFormat::Text);
        fail("shop", 1);
        fail("blog", 1);
        for attempt in 2..9 {
            advance(Duration::from_secs(5)).await;
            fail("shop", attempt);
            tracing::info!("working");
        }
        advance(FIRST_PAUSE).await;
        fail("shop", 9);
        advance(FIRST_PAUSE).await;
        fail("shop", 10);
        advance(FIRST_PAUSE * 2).await;
        fail("shop", 11);
        let lines = lines.text();
        let warnings: Vec<&String> = lines.iter().filter(|line| line.starts_with("WARN")).collect();
        assert_eq!(
            warnings,
            [
                "WARN the round failed app=shop attempt=1",
                "WARN the round failed app=blog attempt=1",
                "WARN the round failed app=shop attempt=9 repeated=7",
                "WARN the round failed app=shop attempt=11 repeated=1",
            ]
        );
        let working = lines.iter().filter(|line| *line == "INFO working");
        assert_eq!(working.count(), 7, "only warnings and errors are counted");
    }

    #[test]
    fn event_without_a_message_is_called_by_its_name() {
        let (lines, _guard) = Lines::of(LogFormat::Text);
        tracing::error!(name = "BatchLogProcessor.ExportError", error = "refused");
        assert_eq!(lines.text(), ["ERROR BatchLogProcessor.ExportError error=refused"]);
    }

    #[tokio::test(start_paused = true)]
    async fn counted_line_in_json_is_valid() {
        let (lines, _guard) = Lines::of(LogFormat::Json);
        for _ in 0..3 {
            fail("shop", 1);
        }
        advance(FIRST_PAUSE).await;
        fail("shop", 2);
        let lines = lines.json();
        assert_eq!(lines.len(), 2);
        let last = &lines[1];
        assert_eq!(
            (&last["app"], &last["attempt"], &last["repeated"]),
            (&"shop".into(), &2.into(), &2.into())
        );
        assert_eq!(lines[0].get("repeated"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn line_has_the_fields_of_its_spans() {
        let round = |app: &str, number: u64| {
            let application = tracing::info_span!("application", app);
            let round = tracing::info_span!(parent: &application, "round", round = number, revision = 3, actor = "user ada");
            round.in_scope(|| {
                tracing::Span::current().record("revision", 4).record("actor", "");
                tracing::warn!(error = "a \"word\"\nand more", revision = 5, "step failed");
            });
        };
        let (lines, guard) = Lines::of(LogFormat::Text);
        round("shop", 1);
        round("blog", 1);
        round("shop", 2);
        let line = |app: &str| {
            format!("WARN step failed app={app} revision=5 round=1 error=\"a \\\"word\\\"\\nand more\"")
        };
        assert_eq!(lines.text(), [line("shop"), line("blog")], "the third is counted");
        drop(guard);
        let (lines, _guard) = Lines::of(LogFormat::Json);
        round("shop", 1);
        let line = &lines.json()[0];
        assert_eq!((&line["app"], &line["round"], &line["revision"]), (&"shop".into(), &1.into(), &5.into()));
        assert_eq!(line.get("actor"), None);
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &"step failed".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn remembered_lines_are_bounded() {
        let mut repeats = Repeats::default();
        for key in 0..10_000 {
            assert_eq!(repeats.note(key, Instant::now()), Some(0));
            advance(Duration::from_millis(1)).await;
        }
        assert_eq!(repeats.0.len(), MOST_LINES);
        assert_eq!(repeats.note(9_999, Instant::now()), None, "the newest are remembered");
    }
}
