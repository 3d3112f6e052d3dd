//! Version ranges over tags, in the notation of npm, Helm and Flux: `>=1.2 <2`, `~1.4`, `^2`, `1.x`,
//! `1.2 - 1.6`, alternatives with `||`.
//!
//! A pre-release such as `1.3.0-rc.1` matches only where the range itself names a pre-release: `>=1.3.0-0`
//! means "with release candidates". Those of the end of a range are outside, unless the range names one of them: `2.0.0-rc.1` is in
//! none of `^1.3.0-0` and `>=1.3.0-0 <2`, and is in `>=2.0.0-0 <2.0.0`. Build metadata never counts.
//!
//! The crate `nodejs-semver` (4.2) does not agree: it ignores `!=`, accepts the empty range and `>*`, and does not match
//! `1.4.0-rc.1` with `>=1.3.0-0`.

use std::fmt;

use semver::{Prerelease, Version};

/// A set of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    text: String,
    /// A version must match all comparators of one alternative.
    alternatives: Vec<Vec<Comparator>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparator {
    operator: Operator,
    version: Version,
    /// It names a pre-release, so pre-releases may match it.
    with_prereleases: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// `1`, `1.2`, `1.2.x` or `1.2.3-rc.1`.
struct Partial {
    major: Option<u64>,
    minor: Option<u64>,
    patch: Option<u64>,
    pre: Prerelease,
}

impl VersionRange {
    /// Parses a range.
    ///
    /// # Errors
    /// A message that names the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let alternatives = text.split("||").map(all_of).collect::<Result<_, _>>()?;
        Ok(Self { text: text.trim().to_owned(), alternatives })
    }

    /// Whether a version is in the range.
    pub fn matches(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|all| {
            let may_be_prerelease = version.pre.is_empty() || all.iter().any(|it| it.with_prereleases);
            let is_candidate_of_end = all.iter().any(|it| it.is_end_before(version));
            // `>=2.0.0-0 <2.0.0` are the candidates of 2.0.0.
            let is_inside = !is_candidate_of_end || all.iter().any(|it| it.names_candidate_of(version));
            may_be_prerelease && is_inside && all.iter().all(|it| it.matches(version))
        })
    }

    /// The version of a tag: `1.2.3` or `v1.2.3`, in full. `None`: the tag is no version.
    pub fn version_of(tag: &str) -> Option<Version> {
        Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Comparator {
    fn matches(&self, version: &Version) -> bool {
        let order = version.cmp_precedence(&self.version);
        match self.operator {
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
        }
    }

    /// Whether the range ends before a release with the numbers of this version.
    fn is_end_before(&self, version: &Version) -> bool {
        self.operator == Operator::Less && self.version.pre.is_empty() && self.has_numbers_of(version)
    }

    /// Whether it includes a pre-release with the numbers of this version.
    fn names_candidate_of(&self, version: &Version) -> bool {
        self.operator != Operator::NotEqual && !self.version.pre.is_empty() && self.has_numbers_of(version)
    }

    fn has_numbers_of(&self, other: &Version) -> bool {
        let numbers = |version: &Version| (version.major, version.minor, version.patch);
        numbers(&self.version) == numbers(other)
    }
}

/// Parses one alternative: comparators separated by spaces or commas.
fn all_of(text: &str) -> Result<Vec<Comparator>, String> {
    let words = words(text);
    if words.is_empty() {
        return Err("a range of versions is empty; write `*` for every version".to_owned());
    }
    if let [from, "-", to] = words.as_slice() {
        let mut all = comparators(">=", from)?;
        all.extend(comparators("<=", to)?);
        return Ok(all);
    }
    let mut all = Vec::new();
    for word in words {
        let end = word.find(|it: char| !"<>=!~^".contains(it)).unwrap_or(word.len());
        let (operator, version) = word.split_at(end);
        all.extend(comparators(operator, version)?);
    }
    Ok(all)
}

/// `>= 1.2` is one word, too.
fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    let mut begin = None;
    for (at, it) in text.char_indices() {
        let is_gap = it.is_whitespace() || it == ',';
        let only_operator = |from: usize| text[from..at].chars().all(|it| "<>=!~^ \t".contains(it));
        match begin {
            None if !is_gap => begin = Some(at),
            Some(from) if is_gap && !only_operator(from) => {
                words.push(&text[from..at]);
                begin = None;
            }
            Some(_) | None => {}
        }
    }
    words.extend(begin.map(|from| text[from..].trim_end()));
    words
}

fn comparators(operator: &str, text: &str) -> Result<Vec<Comparator>, String> {
    let wrong = || format!("`{operator}{text}` is not a range of versions, such as `>=1.2 <2` or `~1.4`");
    let partial = Partial::parse(text.trim()).ok_or_else(wrong)?;
    let Some((from, to)) = partial.span() else {
        // Every version there is.
        return match operator.trim() {
            "" | "=" | ">=" | "<=" | "^" | "~" | "~>" => Ok(Vec::new()),
            _ => Err(wrong()),
        };
    };
    let with_prereleases = !from.pre.is_empty();
    let make =
        |operator, version: &Version| Comparator { operator, version: version.clone(), with_prereleases };
    let is_full = partial.patch.is_some();
    Ok(match operator.trim() {
        "" | "=" | "==" if is_full => vec![make(Operator::Equal, &from)],
        "" | "=" | "==" => vec![make(Operator::GreaterOrEqual, &from), make(Operator::Less, &to)],
        "!=" if is_full => vec![make(Operator::NotEqual, &from)],
        ">" if is_full => vec![make(Operator::Greater, &from)],
        // More than all of 1.2 starts at 1.3.
        ">" => vec![make(Operator::GreaterOrEqual, &to)],
        ">=" => vec![make(Operator::GreaterOrEqual, &from)],
        "<" => vec![make(Operator::Less, &from)],
        "<=" if is_full => vec![make(Operator::LessOrEqual, &from)],
        "<=" => vec![make(Operator::Less, &to)],
        "~" | "~>" => {
            let end = if partial.minor.is_some() { next_minor(&from) } else { to };
            vec![make(Operator::GreaterOrEqual, &from), make(Operator::Less, &end)]
        }
        "^" => vec![make(Operator::GreaterOrEqual, &from), make(Operator::Less, &partial.compatible(&from))],
        _ => return Err(wrong()),
    })
}

impl Partial {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split('+').next().unwrap_or_default();
        let (numbers, pre) = text.split_once('-').map_or((text, None), |(it, pre)| (it, Some(pre)));
        let mut parts = numbers.split('.');
        let mut next = || -> Option<Option<u64>> {
            match parts.next() {
                None | Some("x" | "X" | "*") => Some(None),
                Some(digits) if digits.bytes().all(|it| it.is_ascii_digit()) => digits.parse().ok().map(Some),
                Some(_) => None,
            }
        };
        let (major, minor, patch) = (next()?, next()?, next()?);
        let has_gap = (major.is_none() && minor.is_some()) || (minor.is_none() && patch.is_some());
        if has_gap || parts.next().is_some() || numbers.is_empty() || (pre.is_some() && patch.is_none()) {
            return None;
        }
        Some(Self { major, minor, patch, pre: Prerelease::new(pre.unwrap_or_default()).ok()? })
    }

    /// The first version of the range, and the first one after it; `None` for every version.
    fn span(&self) -> Option<(Version, Version)> {
        let major = self.major?;
        let mut from = Version::new(major, self.minor.unwrap_or(0), self.patch.unwrap_or(0));
        from.pre = self.pre.clone();
        let to = match (self.minor, self.patch) {
            (None, _) => Version::new(major.saturating_add(1), 0, 0),
            (Some(_), _) => next_minor(&from),
        };
        Some((from, to))
    }

    /// The end of `^`: the next version that may be incompatible, given by the first number that is not 0.
    fn compatible(&self, from: &Version) -> Version {
        match (from.major, self.minor, self.patch) {
            (0, Some(0), Some(patch)) => Version::new(0, 0, patch.saturating_add(1)),
            (0, Some(_), _) => next_minor(from),
            (major, _, _) => Version::new(major.saturating_add(1), 0, 0),
        }
    }
}

fn next_minor(version: &Version) -> Version {
    Version::new(version.major, version.minor.saturating_add(1), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(range: &str, tags: &str) -> Vec<String> {
        let range = VersionRange::parse(range).unwrap_or_else(|it| panic!("{it}"));
        let is_in = |tag: &&str| VersionRange::version_of(tag).is_some_and(|it| range.matches(&it));
        tags.split(' ').filter(is_in).map(str::to_owned).collect()
    }

    #[test]
    fn version_ranges_match_as_in_npm_helm_and_flux() {
        let all = "0.0.3 0.0.4 0.2.9 0.3.0 1.0.0 v1.2.0 1.2.7 1.3.0-rc.1 1.3.0 2.0.0-rc.1 2.0.0 2.1 latest";
        for (range, expected) in [
            (">=1.2 <2", "v1.2.0 1.2.7 1.3.0"),
            (">= 1.2, < 2", "v1.2.0 1.2.7 1.3.0"),
            ("~1.2", "v1.2.0 1.2.7"),
            ("~1.2.3", "1.2.7"),
            ("~1", "1.0.0 v1.2.0 1.2.7 1.3.0"),
            ("^1.2", "v1.2.0 1.2.7 1.3.0"),
            ("^0.2.3", "0.2.9"),
            ("^0.0.3", "0.0.3"),
            ("1.x", "1.0.0 v1.2.0 1.2.7 1.3.0"),
            ("1.2", "v1.2.0 1.2.7"),
            ("=1.2.7", "1.2.7"),
            ("1.0.0 - 1.2", "1.0.0 v1.2.0 1.2.7"),
            (">1.2", "1.3.0 2.0.0"),
            ("<=1.2", "0.0.3 0.0.4 0.2.9 0.3.0 1.0.0 v1.2.0 1.2.7"),
            ("<0.3 || >=2", "0.0.3 0.0.4 0.2.9 2.0.0"),
            ("1.x !=1.2.7", "1.0.0 v1.2.0 1.3.0"),
            ("*", "0.0.3 0.0.4 0.2.9 0.3.0 1.0.0 v1.2.0 1.2.7 1.3.0 2.0.0"),
        ] {
            assert_eq!(matching(range, all).join(" "), expected, "{range}");
        }
    }

    #[test]
    fn prereleases_match_only_if_the_range_names_one() {
        let all = "1.3.0-rc.1 1.3.0-rc.2 1.3.0 1.4.0-rc.1";
        assert_eq!(matching(">=1.3.0-0", all).join(" "), all);
        assert_eq!(matching(">=1.3.0-rc.2 <1.4.0-0", all), ["1.3.0-rc.2", "1.3.0"]);
        assert_eq!(matching(">=1.2", all), ["1.3.0"]);
    }

    #[test]
    fn prereleases_of_the_end_are_outside_of_the_range() {
        let all = "1.3.0-rc.1 1.3.0 1.4.0-rc.1 1.4.0 2.0.0-rc.1 2.0.0";
        let below_2 = "1.3.0-rc.1 1.3.0 1.4.0-rc.1 1.4.0";
        for (range, expected) in [
            ("^1.3.0-0", below_2),
            (">=1.3.0-0 <2", below_2),
            (">=1.3.0-0 <2.0.0", below_2),
            ("1.3.0-0 - 1", below_2),
            ("~1.3.0-0", "1.3.0-rc.1 1.3.0"),
            (">=1.3.0-0 <2.0.0-rc.2", "1.3.0-rc.1 1.3.0 1.4.0-rc.1 1.4.0 2.0.0-rc.1"),
            (">=1.3.0-0 <=2.0.0", all),
            (">=2.0.0-0 <2.0.0", "2.0.0-rc.1"),
            (">=2.0.0-rc.1 <2 || ^1.4", "1.4.0 2.0.0-rc.1"),
            (">=1.3.0-0 <2 || ~1.3.0", below_2),
            (">=1.3.0-0 <2 !=2.0.0-rc.2", below_2),
        ] {
            assert_eq!(matching(range, all).join(" "), expected, "{range}");
        }
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for text in ["", "||", "1.2.3.4", "latest", ">>1", ">=1.x.3", "1.2-rc", ">*", "99999999999999999999"]
        {
            assert!(VersionRange::parse(text).is_err(), "{text}");
        }
    }
}
