//! The program inside the campaign's containers. It writes its starts and runs to its volume, where the campaign reads
//! them.
//!
//! `serve` holds a lock on its volume for as long as it lives; a second container on the same volume cannot get it
//! and writes a line to `overlap`. `job MILLISECONDS` writes `begin V` and, before it ends with 0, `end V` to `runs`.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    thread::sleep,
    time::Duration,
};

const DATA: &str = "/data";

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let version = env::var("V").unwrap_or_default();
    match words.first().map(String::as_str) {
        Some("serve") => serve(&version),
        Some("job") => {
            append("runs", &format!("begin {version}"));
            let pause = words.get(1).and_then(|text| text.parse().ok()).unwrap_or(200);
            sleep(Duration::from_millis(pause));
            append("runs", &format!("end {version}"));
        }
        _ => panic!("usage: workload serve | job MILLISECONDS"),
    }
}

fn serve(version: &str) {
    let data = Path::new(DATA);
    let mut held = None;
    if data.is_dir() {
        let lock = OpenOptions::new().create(true).write(true).truncate(false).open(data.join("lock"));
        match lock.map(|file| (file.try_lock().is_ok(), file)) {
            Ok((true, file)) => held = Some(file),
            _ => append("overlap", version),
        }
        let starts = fs::read_to_string(data.join("starts")).unwrap_or_default();
        append("starts", &format!("{} {version}", starts.lines().count() + 1));
    }
    loop {
        sleep(Duration::from_secs(3600));
        drop(held.as_ref());
    }
}

/// One write for one line, so that a line is whole or absent.
fn append(name: &str, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(Path::new(DATA).join(name));
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
