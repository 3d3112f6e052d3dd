//! The messages of a builder, line by line: the current step, the end of the output, and the error. Secret values are hidden
//! before anything is kept or reported.
//!
//! The classic builder writes text; `BuildKit` writes messages in protocol buffers.

use std::collections::{BTreeMap, VecDeque};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use driftless_model::Mask;
use serde::Deserialize;

use super::protobuf::{Value, fields};
use crate::call_error::clean;

/// The number of last lines of the output in an error.
const TAIL: usize = 15;
/// The number of characters that are kept of each line.
const WIDTH: usize = 200;
/// Bytes. A longer line is cut.
const LONGEST: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Output {
    image: String,
    hidden: Vec<String>,
    mask: Mask,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    step: String,
    tail: VecDeque<String>,
    /// The names of `BuildKit`'s steps, by digest, and whether they were reported.
    steps: BTreeMap<Vec<u8>, (String, bool)>,
    error: Option<String>,
    is_built: bool,
}

/// A line of the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputLine {
    id: Option<String>,
    stream: Option<String>,
    status: Option<String>,
    error: Option<String>,
    aux: Option<serde_json::Value>,
}

impl Output {
    pub(super) fn new(image: &str, hidden: Vec<String>, mask: Mask) -> Self {
        Self {
            image: image.to_owned(),
            hidden,
            mask,
            partial: Vec::new(),
            step: String::new(),
            tail: VecDeque::new(),
            steps: BTreeMap::new(),
            error: None,
            is_built: false,
        }
    }

    /// Takes received bytes. Returns the progress if it has changed.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<String> {
        let mut has_changed = false;
        for piece in bytes.split_inclusive(|it| *it == b'\n') {
            self.partial.extend_from_slice(piece);
            if self.partial.ends_with(b"\n") || self.partial.len() > LONGEST {
                let line = std::mem::take(&mut self.partial);
                has_changed |= self.line(&line);
            }
        }
        has_changed.then(|| self.progress())
    }

    /// Ends the output. Fails if there is no image.
    pub(super) fn finish(mut self) -> Result<(), String> {
        let rest = std::mem::take(&mut self.partial);
        self.line(&rest);
        match self.error.take() {
            Some(error) => Err(self.failure(&error)),
            None if self.is_built => Ok(()),
            None => Err(self.failure("the engine ended the build without an image")),
        }
    }

    /// The message of a failure: the step, the reason, and the end of the output.
    pub(super) fn failure(&self, reason: &str) -> String {
        let mut text = self.hide(reason);
        if !self.step.is_empty() && !text.contains(&self.step) {
            text = format!("{}: {text}", self.step);
        }
        let tail: Vec<&str> = self.tail.iter().map(String::as_str).collect();
        if tail.is_empty() { text } else { format!("{text}\nthe end of its output:\n{}", tail.join("\n")) }
    }

    /// `building shop-web:3f9a (step 2/3 : RUN make: gcc -c a.c)`
    fn progress(&self) -> String {
        let Self { image, step, tail, .. } = self;
        match (step.is_empty(), tail.back()) {
            (true, None) => format!("building {image}"),
            (true, Some(last)) => format!("building {image} ({last})"),
            (false, None) => format!("building {image} ({step})"),
            (false, Some(last)) => format!("building {image} ({step}: {last})"),
        }
    }

    fn line(&mut self, line: &[u8]) -> bool {
        let Ok(OutputLine { id, stream, status, error, aux }) = serde_json::from_slice(line) else {
            return false;
        };
        if let Some(error) = error {
            self.error = Some(clean(&error));
        }
        match (id.as_deref(), aux) {
            (Some("moby.buildkit.trace"), Some(serde_json::Value::String(packed))) => {
                return STANDARD.decode(packed).is_ok_and(|it| self.trace(&it));
            }
            (_, Some(aux)) => self.is_built |= aux.get("ID").is_some(),
            // The state of a layer of a base image.
            (Some(_), None) => return status.is_some_and(|it| !it.contains("ing") && self.add_line(&it)),
            (None, None) => {}
        }
        stream.is_some_and(|it| self.text(&it))
    }

    fn text(&mut self, text: &str) -> bool {
        let mut has_changed = false;
        for line in text.lines().map(str::trim).filter(|it| !it.is_empty()) {
            let is_id = line.starts_with("--->") || line.starts_with("Removing intermediate container");
            if let Some(step) = line.strip_prefix("Step ") {
                self.begin(&format!("step {step}"));
            } else if line.starts_with("Successfully built ") {
                self.is_built = true;
            } else if is_id || line.starts_with("Successfully tagged ") {
                continue;
            } else {
                self.add_line(line);
            }
            has_changed = true;
        }
        has_changed
    }

    /// The steps that begin and end, and their output.
    fn trace(&mut self, packed: &[u8]) -> bool {
        let mut has_changed = false;
        for (field, value) in fields(packed) {
            let Value::Bytes(inner) = value else { continue };
            match field {
                1 => has_changed |= self.vertex(inner),
                3 => {
                    for it in fields(inner) {
                        if let (4, Value::Bytes(text)) = it {
                            for line in String::from_utf8_lossy(text).lines() {
                                has_changed |= self.add_line(line);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        has_changed
    }

    fn vertex(&mut self, packed: &[u8]) -> bool {
        let (mut digest, mut name, mut has_begun, mut is_cached) = (Vec::new(), String::new(), false, false);
        for it in fields(packed) {
            match it {
                (1, Value::Bytes(it)) => digest = it.to_vec(),
                (3, Value::Bytes(it)) => name = String::from_utf8_lossy(it).into_owned(),
                (4, Value::Number(it)) => is_cached = it != 0,
                (5, Value::Bytes(_)) => has_begun = true,
                _ => {}
            }
        }
        let (name, is_reported) = self.steps.entry(digest).or_insert((name, false));
        if *is_reported || !has_begun || name.starts_with("[internal]") {
            return false;
        }
        *is_reported = true;
        let step = if is_cached { format!("{name}, cached") } else { name.clone() };
        self.begin(&step);
        true
    }

    fn begin(&mut self, step: &str) {
        self.step = shortened(&self.hide(step));
        self.tail.clear();
        tracing::info!(image = self.image, step = self.step, "build step begins");
    }

    fn add_line(&mut self, line: &str) -> bool {
        let line = shortened(&self.hide(line.trim()));
        if line.is_empty() {
            return false;
        }
        tracing::debug!(image = self.image, line, "output of a build");
        self.tail.push_back(line);
        if self.tail.len() > TAIL {
            self.tail.pop_front();
        }
        true
    }

    fn hide(&self, text: &str) -> String {
        let text =
            self.hidden.iter().fold(text.to_owned(), |text, it| text.replace(it.as_str(), Mask::HIDDEN));
        self.mask.output(&text)
    }
}

/// Without control characters, such as the colours of a terminal.
fn shortened(text: &str) -> String {
    let plain: String =
        text.chars().filter(|letter| !driftless_model::is_unprintable(*letter)).take(WIDTH).collect();
    if plain.len() < text.trim_end().len() && plain.chars().count() == WIDTH {
        format!("{plain}…")
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::{super::protobuf::Writer, *};

    fn output() -> Output {
        let mask = Mask::without_codes().with_secret_values(["ABCD-1234\nEFGH-5678-IJKL"]);
        Output::new("web:1", vec!["hunter2".to_owned()], mask)
    }

    #[test]
    fn steps_of_the_classic_builder_are_read() {
        let mut output = output();
        let said = output
            .take(b"{\"stream\":\"Step 1/2 : FROM scratch\\n\"}\r\n{\"stream\":\" ---\\u003e \\n\"}\r\n");
        assert_eq!(said.as_deref(), Some("building web:1 (step 1/2 : FROM scratch)"));
        assert_eq!(output.take(b"{\"stream\":\"Step 2/2 : RUN"), None);
        let said = output.take(b" make hunter2\"}\n{\"stream\":\"+ ./install --key EFGH-5678-IJKL\"}\n");
        assert_eq!(
            said.as_deref(),
            Some("building web:1 (step 2/2 : RUN make ••••: + ./install --key ••••)")
        );
        let said = output.take(b"{\"stream\":\"gcc a.c\"}\n");
        assert_eq!(said.as_deref(), Some("building web:1 (step 2/2 : RUN make ••••: gcc a.c)"));
        output.take(b"{\"error\":\"returned a non-zero code: 2\"}\n");
        assert_eq!(
            output.finish().unwrap_err(),
            "step 2/2 : RUN make ••••: returned a non-zero code: 2\nthe end of its output:\n+ ./install --key ••••\ngcc a.c"
        );
    }

    #[test]
    fn steps_of_buildkit_are_read() {
        let mut output = output();
        let vertex = |name: &str, begun: &[u8]| {
            Writer::default().bytes(1, b"d").bytes(3, name.as_bytes()).bytes(5, begun).finish()
        };
        let log = Writer::default().bytes(1, b"d").bytes(4, b"gcc a.c\nhunter2 is it\n").finish();
        let message = Writer::default()
            .message(1, &vertex("[2/3] RUN make", b""))
            .message(1, &vertex("", b"x"))
            .message(3, &log)
            .finish();
        let line = format!("{{\"id\":\"moby.buildkit.trace\",\"aux\":\"{}\"}}\n", STANDARD.encode(message));
        assert_eq!(
            output.take(line.as_bytes()).as_deref(),
            Some("building web:1 ([2/3] RUN make: •••• is it)")
        );
        output.take(b"{\"id\":\"moby.image.id\",\"aux\":{\"ID\":\"sha256:00\"}}\n");
        assert_eq!(output.finish(), Ok(()));
    }

    #[test]
    fn build_without_an_image_fails() {
        assert_eq!(output().finish().unwrap_err(), "the engine ended the build without an image");
    }
}
