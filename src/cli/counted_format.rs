//! The format of the log: a warning or error that repeats is counted instead of printed each time.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// The first pause in which a repeated line is only counted. It doubles as long as the line repeats.
const FIRST_PAUSE: Duration = Duration::from_mins(1);

/// The longest pause. A line that was not seen for as long is new again.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The most lines that are remembered.
const MOST_LINES: usize = 512;

/// Fields that differ each time although the line says the same.
const COUNTERS: [&str; 5] = ["attempt", "next_try", "round", "took", "seconds"];

/// A format that leaves out warnings and errors that repeat, and writes their number with the next one: `repeated=12`.
pub struct CountedFormat<F> {
    format: F,
    is_json: bool,
    repeats: Mutex<Repeats>,
}

impl<F> CountedFormat<F> {
    /// Counts the lines of a format of text.
    pub fn text(format: F) -> Self {
        Self { format, is_json: false, repeats: Mutex::default() }
    }

    /// Counts the lines of a format of JSON.
    pub fn json(format: F) -> Self {
        Self { format, is_json: true, repeats: Mutex::default() }
    }
}

impl<S, N, F> FormatEvent<S, N> for CountedFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if *event.metadata().level() > Level::WARN {
            return self.format.format_event(context, writer, event);
        }
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = repeats.note(key(event), Instant::now());
        drop(repeats);
        match left_out {
            None => Ok(()),
            Some(0) => self.format.format_event(context, writer, event),
            Some(count) => {
                let mut line = String::new();
                self.format.format_event(context, Writer::new(&mut line), event)?;
                writer.write_str(&with_count(&line, count, self.is_json))
            }
        }
    }
}

/// The line with the number of those that were left out.
fn with_count(line: &str, count: u64, is_json: bool) -> String {
    let line = line.trim_end();
    match line.strip_suffix('}') {
        Some(object) if is_json => format!("{object},\"repeated\":{count}}}\n"),
        Some(_) | None => format!("{line} repeated={count}\n"),
    }
}

/// Identifies what a line says: its place in the program and its fields, without counters.
fn key(event: &Event<'_>) -> u64 {
    let mut visitor = Gist(DefaultHasher::new());
    let place = event.metadata();
    (place.file(), place.line()).hash(&mut visitor.0);
    event.record(&mut visitor);
    visitor.0.finish()
}

/// Hashes the fields of a line.
struct Gist(DefaultHasher);

impl Visit for Gist {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if !COUNTERS.contains(&field.name()) {
            (field.name(), format!("{value:?}")).hash(&mut self.0);
        }
    }
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
    use tracing_subscriber::fmt::{MakeWriter, format};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

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
        let lines = Lines::default();
        let format = CountedFormat::text(format().without_time().with_target(false));
        let subscriber = tracing_subscriber::fmt().with_ansi(false).event_format(format);
        let subscriber = subscriber.with_writer(lines.clone()).finish();
        let _default = tracing::subscriber::set_default(subscriber);
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
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let warnings: Vec<_> = text.lines().filter(|line| line.contains("WARN")).map(str::trim).collect();
        assert_eq!(
            warnings,
            [
                "WARN the round failed app=\"shop\" attempt=1",
                "WARN the round failed app=\"blog\" attempt=1",
                "WARN the round failed app=\"shop\" attempt=9 repeated=7",
                "WARN the round failed app=\"shop\" attempt=11 repeated=1",
            ]
        );
        assert_eq!(text.matches("INFO working").count(), 7, "only warnings and errors are counted");
    }

    #[tokio::test(start_paused = true)]
    async fn counted_line_in_json_is_valid() {
        let lines = Lines::default();
        let format = CountedFormat::json(format().json().flatten_event(true));
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .event_format(format)
            .with_writer(lines.clone());
        let _default = tracing::subscriber::set_default(subscriber.finish());
        for _ in 0..3 {
            fail("shop", 1);
        }
        advance(FIRST_PAUSE).await;
        fail("shop", 2);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        let last = &lines[1];
        assert_eq!(
            (&last["app"], &last["attempt"], &last["repeated"]),
            (&"shop".into(), &2.into(), &2.into())
        );
        assert_eq!(lines[0].get("repeated"), None);
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
