//! Progress of long work: one spinner line on a terminal, one line per change elsewhere.

use std::{collections::BTreeMap, time::Duration};

use super::screen::{Screen, plain};
use driftless_agent::Handle;
use driftless_model::{AppName, OperationPhase};

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Interval of the spinner. It moves only while work is done.
pub(super) const TURN_EVERY: Duration = Duration::from_millis(100);

/// Longest line. A longer one would wrap and could not be erased.
const LONGEST: usize = 78;

/// One progress line on standard error.
#[derive(Debug)]
pub(super) struct Spinner<'a> {
    screen: &'a Screen,
    frame: usize,
    text: String,
}

impl<'a> Spinner<'a> {
    /// A line without text, which is not shown.
    pub(super) fn new(screen: &'a Screen) -> Self {
        Self { screen, frame: 0, text: String::new() }
    }

    /// Sets the text. Without a terminal, only a changed text is printed.
    pub(super) fn show(&mut self, text: &str) {
        let is_news = gist(&self.text) != gist(text);
        text.clone_into(&mut self.text);
        if self.screen.is_terminal() {
            self.draw();
        } else if is_news {
            self.screen.say_folded(text);
        }
    }

    /// Draws the next frame.
    pub(super) fn turn(&mut self) {
        self.frame = self.frame.wrapping_add(1);
        self.draw();
    }

    pub(super) fn end(&mut self) {
        self.screen.no_progress();
    }

    fn draw(&self) {
        if !self.text.is_empty() {
            let frame = FRAMES.iter().cycle().nth(self.frame % FRAMES.len()).unwrap_or(&"");
            let short: String = self.text.chars().take(LONGEST).collect();
            self.screen.progress(&format!("{frame} {short}"));
        }
    }
}

impl Drop for Spinner<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Shows the agent's progress until the agent stops.
pub(super) async fn follow(mut handle: Handle, screen: &Screen) {
    let mut spinner = Spinner::new(screen);
    let mut logged: BTreeMap<AppName, String> = BTreeMap::new();
    loop {
        let working = working(&handle);
        if screen.is_terminal() {
            if let Some(line) = line(&working) {
                spinner.show(&line);
            } else {
                spinner.text.clear();
                spinner.end();
            }
        } else {
            for (app, message) in &working {
                if logged.get(app).is_none_or(|it| it != gist(message)) {
                    tracing::info!(%app, step = %message, "working");
                    logged.insert(app.clone(), gist(message).to_owned());
                }
            }
            logged.retain(|app, _| working.contains_key(app));
        }
        let turning = screen.is_terminal() && !working.is_empty();
        tokio::select! {
            alive = handle.changed() => if !alive { return },
            () = tokio::time::sleep(TURN_EVERY), if turning => spinner.turn(),
        }
    }
}

/// A message without its counter: `pulling web:1.2 (34 %)` → `pulling web:1.2`.
fn gist(message: &str) -> &str {
    message.split(" (").next().unwrap_or_default()
}

fn working(handle: &Handle) -> BTreeMap<AppName, String> {
    let applications = handle.applications();
    let running = applications.values().filter_map(|application| {
        let operation = application.status.operation.as_ref()?;
        let is_news = operation.phase == OperationPhase::Running && !operation.message.is_empty();
        is_news.then(|| (application.name.clone(), plain(&operation.message).replace('\n', " ")))
    });
    running.collect()
}

/// `shop: pulling web:1.2 (34 %), and 2 more`
fn line(working: &BTreeMap<AppName, String>) -> Option<String> {
    let (app, message) = working.iter().next()?;
    Some(match working.len() {
        1 => format!("{app}: {message}"),
        several => format!("{app}: {message}, and {} more", several - 1),
    })
}
