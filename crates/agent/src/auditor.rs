//! Writes the audit, to the database and to a file.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::Audit;
use driftless_model::{AppName, AuditEntry};
use driftless_store::Store;
use tokio::{task::spawn_blocking, time::sleep};

/// The longest detail or message of an entry, in characters.
const LONGEST_TEXT: usize = 500;

/// Entries of this time are brought to the disk together. A request waits only until its entry survives the end of the
/// process: the disk took more time than all else that answers it.
const SYNC_PAUSE: Duration = Duration::from_millis(100);

/// Writes entries to the database and to the file of the configuration.
#[derive(Debug)]
pub struct Auditor {
    store: Store,
    settings: Audit,
    clock: Clock,
    /// Whether a task is about to bring the entries to the disk.
    is_syncing: Arc<AtomicBool>,
}

impl Auditor {
    /// With the retention and file of the configuration.
    pub fn new(store: Store, settings: Audit, clock: Clock) -> Self {
        Self { store, settings, clock, is_syncing: Arc::default() }
    }

    /// Stores an entry. If that fails, the log has it.
    pub async fn store(&self, entry: impl Into<Option<AuditEntry>>) {
        let Some(mut entry) = entry.into() else { return };
        entry.at = self.clock.now();
        for text in [&mut entry.detail, &mut entry.message] {
            if text.chars().count() > LONGEST_TEXT {
                *text = text.chars().take(LONGEST_TEXT).collect();
            }
        }
        tracing::info!(
            actor = %entry.actor, app = entry.app.as_ref().map(AppName::as_str), action = entry.action,
            from = entry.from, detail = entry.detail, result = %entry.result, "request"
        );
        let (store, Audit { keep, file }) = (self.store.clone(), self.settings.clone());
        let written = spawn_blocking(move || {
            let stored = store.append_audit(entry.clone(), keep);
            let entry = stored.as_ref().unwrap_or(&entry);
            let error = stored.as_ref().err();
            if let Some(error) = error {
                tracing::error!(
                    actor = %entry.actor, action = entry.action, app = entry.app.as_ref().map(AppName::as_str),
                    result = %entry.result, error = error as &dyn std::error::Error,
                    "could not store an audit entry"
                );
            }
            if let Some(file) = &file
                && let Err(error) = append_line(file, entry)
            {
                tracing::error!(file = %file.display(), %error, "could not append to the file of the audit");
            }
        });
        // A panic is in the log.
        let _ = written.await;
        self.sync_soon();
    }

    fn sync_soon(&self) {
        if self.is_syncing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, is_syncing) = (self.store.clone(), Arc::clone(&self.is_syncing));
        tokio::spawn(async move {
            sleep(SYNC_PAUSE).await;
            // Before the sync: it may miss an entry that is written from now on.
            is_syncing.store(false, Ordering::Release);
            let synced = spawn_blocking(move || store.sync_audit()).await;
            if let Ok(Err(error)) = synced {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not bring the audit to the disk"
                );
            }
        });
    }
}

/// Opens the file for each line, so that it can be rotated.
fn append_line(file: &Path, entry: &AuditEntry) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    OpenOptions::new().append(true).create(true).mode(0o600).open(file)?.write_all(&line)
}
