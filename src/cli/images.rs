//! `driftless images`: the images of the engine, what each one is kept for, and their clean-up.

use std::fmt::Write as _;

use clap::Args;

use super::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::{Output, ServerArgs},
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};
use driftless_model::{ImageCleanup, ImageUse, KeepReason, Timestamp};

/// Show the images of the engine, and what each one is kept for.
///
/// An image is removed by a clean-up only if the agent pulled or built it and no container and no kept revision needs it.
/// Without `--remove` nothing is removed. `imageCleanup` in the configuration cleans up after each successful sync.
#[derive(Debug, Args)]
pub(super) struct ImagesArgs {
    /// Remove the images that nothing needs. Needs the scope admin.
    #[arg(long)]
    remove: bool,
    /// Print whole lines instead of cutting them to the width of the terminal.
    #[arg(long)]
    wide: bool,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn images(args: &ImagesArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    if args.remove {
        let cleanup: ImageCleanup = client.post_work("/api/v1/images/clean-up").await?;
        print(&match args.output {
            Output::Json => json(&cleanup),
            Output::Yaml => yaml(&cleanup),
            Output::Table | Output::Wide => render_cleanup(&cleanup),
        })?;
        return Ok(if cleanup.failed.is_empty() { ExitStatus::Success } else { ExitStatus::Negative });
    }
    let uses: Vec<ImageUse> = client.get("/api/v1/images").await?;
    print(&match args.output {
        Output::Json => json(&uses),
        Output::Yaml => yaml(&uses),
        Output::Table => {
            let width = (!args.wide).then(|| context.list_width());
            render_images(&uses, context.clock.now(), (Reasons::First, width), context.colours)
        }
        Output::Wide => render_images(&uses, context.clock.now(), (Reasons::All, None), context.colours),
    })?;
    Ok(ExitStatus::Success)
}

/// The number of reasons that are shown for an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reasons {
    First,
    All,
}

/// A table of images, cut to a width if there is one.
fn render_images(
    uses: &[ImageUse],
    now: Timestamp,
    (shown, width): (Reasons, Option<usize>),
    colours: Colours,
) -> String {
    if uses.is_empty() {
        return "the engine has no images\n".to_owned();
    }
    let mut table = Table::new(0, &["IMAGE", "SIZE", "BROUGHT", "KEPT FOR"]);
    for image in uses {
        let reasons = match (image.kept_for.as_slice(), shown) {
            ([], _) => Cell::painted(Paint::Busy, "nothing: a clean-up removes it".to_owned()),
            ([first], Reasons::First) => reason(first).into(),
            ([first, rest @ ..], Reasons::First) => {
                format!("{} and {} more", reason(first), rest.len()).into()
            }
            (all, Reasons::All) => all.iter().map(reason).collect::<Vec<_>>().join(", ").into(),
        };
        table.row([
            name(image).into(),
            size(image.bytes).into(),
            image.brought_at.map_or_else(|| "-".to_owned(), |at| span(now.since(at))).into(),
            reasons,
        ]);
    }
    if let Some(width) = width {
        table.fit(width);
    }
    let mut text = table.render(colours);
    let unneeded: Vec<&ImageUse> = uses.iter().filter(|image| image.is_unneeded()).collect();
    if !unneeded.is_empty() {
        let bytes = unneeded.iter().fold(0_u64, |sum, image| sum.saturating_add(image.bytes));
        let _ = writeln!(
            text,
            "\n`driftless images --remove` removes {}: up to {},\nwithout the layers that other images share",
            images_text(unneeded.len()),
            size(bytes)
        );
    }
    text
}

fn render_cleanup(cleanup: &ImageCleanup) -> String {
    let mut text = String::new();
    for image in &cleanup.removed {
        let _ = writeln!(text, "removed {} ({})", name(image), size(image.bytes));
    }
    for error in &cleanup.failed {
        let _ = writeln!(text, "kept: {}", plain(error));
    }
    if text.is_empty() {
        "nothing to remove: every image is needed or was not brought by the agent\n".clone_into(&mut text);
    }
    text
}

fn images_text(count: usize) -> String {
    if count == 1 { "1 image".to_owned() } else { format!("{count} images") }
}

/// The first name of an image, or the beginning of its id.
fn name(image: &ImageUse) -> String {
    let short = || {
        let digits = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
        digits.chars().take(12).collect()
    };
    plain(&image.names.first().cloned().unwrap_or_else(short))
}

fn reason(reason: &KeepReason) -> String {
    match reason {
        KeepReason::NotBrought => "not brought by the agent".to_owned(),
        KeepReason::Container { name } => format!("container {}", plain(name)),
        KeepReason::Revision { app, number } => format!("{} #{number}", plain(app.as_str())),
        KeepReason::OtherName { name } => format!("a name of somebody else: {}", plain(name)),
        KeepReason::New => "brought within the last hour".to_owned(),
    }
}

/// `3.4 MB`, in units of 1000.
fn size(bytes: u64) -> String {
    let (mut tenths, mut units) = (bytes / 100_000, ["MB", "GB", "TB"].into_iter());
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if tenths < 10_000 {
            break;
        }
        (tenths, unit) = (tenths / 1000, next);
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unneeded_images_are_summed_below_the_table() {
        let image = |name: &str, kept_for: &[KeepReason]| ImageUse {
            id: "sha256:0123456789abcdef".to_owned(),
            names: [name.to_owned()].into_iter().filter(|name| !name.is_empty()).collect(),
            bytes: 1_450_000_000,
            brought_at: Some(Timestamp(0)),
            kept_for: kept_for.to_vec(),
        };
        let container = KeepReason::Container { name: "shop-web-1".to_owned() };
        let uses = [image("", &[]), image("web:2", &[container.clone(), KeepReason::New])];
        let text = render_images(&uses, Timestamp(60_000), (Reasons::First, Some(80)), Colours::Off);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "IMAGE         SIZE    BROUGHT  KEPT FOR",
                "0123456789ab  1.4 GB  60s      nothing: a clean-up removes it",
                "web:2         1.4 GB  60s      container shop-web-1 and 1 more",
                "",
                "`driftless images --remove` removes 1 image: up to 1.4 GB,",
                "without the layers that other images share",
            ]
        );
        let long = format!("registry.example.com/{}/web:2", "a".repeat(70));
        let reasons = [KeepReason::Revision { app: "shop".into(), number: 7 }, KeepReason::New];
        let text = render_images(
            &[image(&long, &reasons)],
            Timestamp(60_000),
            (Reasons::First, Some(80)),
            Colours::Off,
        );
        assert!(text.lines().all(|line| line.trim_end().chars().count() <= 80), "{text}");
        assert!(text.contains("shop #7"), "{text}");
        assert_eq!(size(3_450_000), "3.4 MB");
        let cleanup = ImageCleanup { removed: vec![image("web:1", &[])], ..ImageCleanup::default() };
        assert_eq!(render_cleanup(&cleanup), "removed web:1 (1.4 GB)\n");
    }
}
