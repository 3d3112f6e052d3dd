//! Platforms of images: operating system, architecture and variant, as Docker writes them (`linux/arm/v7`).

use std::fmt;

/// A platform. What is not given fits everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

/// Operating systems that a platform of one word may name. Another single word is an architecture.
const SYSTEMS: &[&str] = &["linux", "windows", "darwin", "freebsd", "wasi"];

/// The variants of ARM of 32 bits, the newest first.
const ARM_VARIANTS: &[&str] = &["v8", "v7", "v6", "v5"];

impl Platform {
    /// Reads `linux/arm64`, `linux/arm/v7`, `linux` or `arm64`. Other names of an architecture become those of Go.
    ///
    /// ```
    /// use driftless_model::Platform;
    ///
    /// assert_eq!(Platform::parse("linux/x86_64"), Platform::parse("linux/amd64"));
    /// assert!(Platform::parse("linux/arm/v7").runs(&Platform::parse("linux/arm")));
    /// ```
    pub fn parse(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let mut parts = lower.split('/');
        let first = parts.next().filter(|part| !part.is_empty());
        let second = parts.next();
        let (os, architecture) = match (first, second) {
            (Some(first), None) if !SYSTEMS.contains(&first) => (None, Some(first)),
            (first, second) => (first, second),
        };
        let variant = parts.next();
        let (architecture, variant) = match (architecture, variant) {
            (Some("x86_64" | "x86-64" | "amd64"), variant) => {
                (Some("amd64"), variant.filter(|variant| *variant != "v1"))
            }
            (Some("i386" | "x86" | "386"), _) => (Some("386"), None),
            (Some("aarch64" | "arm64"), variant) => (Some("arm64"), variant.filter(|it| *it != "v8")),
            (Some("armhf" | "armv7l"), _) => (Some("arm"), Some("v7")),
            (Some("armel" | "armv6l"), _) => (Some("arm"), Some("v6")),
            other => other,
        };
        // A single word with a variant is one of Linux.
        let os = os.or(variant.map(|_| "linux"));
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Self { os: owned(os), architecture: owned(architecture), variant: owned(variant) }
    }

    /// Whether images are for Linux, as far as it is given.
    pub fn is_linux(&self) -> bool {
        self.os.as_deref().is_none_or(|os| os == "linux")
    }

    /// Whether it asks for this architecture (in the words of Go) or for none.
    pub fn is_of(&self, architecture: &str) -> bool {
        self.architecture.as_deref().is_none_or(|own| own == architecture)
    }

    /// Whether a host of this platform runs images for `wanted`.
    pub fn runs(&self, wanted: &Self) -> bool {
        let fits = |own: &Option<String>, wanted: &Option<String>| wanted.is_none() || own == wanted;
        fits(&self.os, &wanted.os)
            && fits(&self.architecture, &wanted.architecture)
            && fits(&self.variant, &wanted.variant)
    }
}

impl Platform {
    /// Whether it is the same platform as `wanted`, as far as both are given. ARM without a variant is its version 7.
    pub fn is_same(&self, wanted: &Self) -> bool {
        let is_same = |own: &Option<String>, wanted: &Option<String>| {
            own.is_none() || wanted.is_none() || own == wanted
        };
        let is_known = self.architecture.is_some() && wanted.architecture.is_some();
        is_same(&self.os, &wanted.os)
            && is_same(&self.architecture, &wanted.architecture)
            && (!is_known || self.variant_or_default() == wanted.variant_or_default())
    }

    /// The platforms whose images a host of this one gets from an index, the best first: on ARM of 32 bits, those of an older
    /// variant as well.
    pub fn by_preference(&self) -> Vec<Self> {
        let own = self.variant_or_default().filter(|_| self.is_32_bit_arm());
        let at = own.and_then(|own| ARM_VARIANTS.iter().position(|variant| *variant == own));
        let Some(older) = at.and_then(|at| ARM_VARIANTS.get(at..)) else { return vec![self.clone()] };
        let of_variant = |variant: &&str| Self { variant: Some((*variant).to_owned()), ..self.clone() };
        older.iter().map(of_variant).collect()
    }

    /// The same platform, with the variant that an index means where it names none.
    #[must_use]
    pub fn with_default_variant(self) -> Self {
        let variant = self.variant_or_default().map(str::to_owned);
        Self { variant, ..self }
    }

    fn is_32_bit_arm(&self) -> bool {
        self.architecture.as_deref() == Some("arm")
    }

    fn variant_or_default(&self) -> Option<&str> {
        let default = self.is_32_bit_arm().then_some("v7");
        self.variant.as_deref().or(default)
    }

    /// Whether a host of `wanted` runs images of this platform as its own: an older variant does as well, and so does the
    /// 32-bit form of the same processor. An engine with the classic image store compares all platforms in this way.
    pub fn serves(&self, wanted: &Self) -> bool {
        let architecture = |platform: &Self| platform.architecture.clone().unwrap_or_default();
        let (own, asked) = (architecture(self), architecture(wanted));
        let is_of_system = self.os.is_none() || wanted.os.is_none() || self.os == wanted.os;
        let is_narrower = matches!((own.as_str(), asked.as_str()), ("386", "amd64") | ("arm", "arm64"));
        let is_older = match (&self.variant, &wanted.variant) {
            (Some(own), Some(asked)) => own.len() <= asked.len() && own <= asked,
            (None, _) | (_, None) => true,
        };
        let is_known = !own.is_empty() && !asked.is_empty();
        is_of_system && (!is_known || is_narrower || (own == asked && is_older))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.os, &self.architecture, &self.variant];
        let given: Vec<&str> = parts.into_iter().filter_map(|part| part.as_deref()).collect();
        f.write_str(&given.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_compared_in_their_normal_form() {
        for (offered, wanted, fits) in [
            ("linux/amd64", "linux/amd64", true),
            ("linux/amd64", "linux/x86_64", true),
            ("linux/amd64", "amd64", true),
            ("linux/amd64", "linux", true),
            ("linux/amd64", "linux/amd64/v1", true),
            ("linux/amd64", "linux/amd64/v3", false),
            ("linux/amd64/v3", "linux/amd64/v3", true),
            ("linux/amd64", "linux/arm64", false),
            ("linux/arm64", "linux/arm64/v8", true),
            ("linux/arm/v7", "linux/arm", true),
            ("linux/arm/v6", "linux/arm/v7", false),
            ("linux/amd64", "windows/amd64", false),
        ] {
            let found = Platform::parse(offered).runs(&Platform::parse(wanted));
            assert_eq!(found, fits, "{offered} {wanted}");
        }
        assert_eq!(Platform::parse("Linux/AARCH64/v8").to_string(), "linux/arm64");
        for text in ["linux/arm/v7", "arm64", "linux", "armv7l", "linux/amd64/v3", "x86_64", "windows/amd64"]
        {
            let platform = Platform::parse(text);
            assert_eq!(Platform::parse(&platform.to_string()), platform, "{text}");
        }
    }

    #[test]
    fn the_same_platform_may_be_written_in_other_words() {
        for (image, wanted, fits) in [
            ("linux/amd64", "linux/x86_64", true),
            ("linux/arm64", "linux/arm64/v8", true),
            ("linux/arm64", "arm64", true),
            ("linux/arm64", "linux", true),
            ("linux/arm/v7", "linux/arm", true),
            ("linux/arm/v6", "linux/arm", false),
            ("linux/arm/v6", "linux/arm/v7", false),
            ("linux/arm/v7", "linux/arm64", false),
            ("linux/386", "linux/amd64", false),
            ("linux/amd64", "linux/amd64/v3", false),
            ("linux/amd64/v3", "linux/amd64", false),
            ("linux/amd64", "windows/amd64", false),
        ] {
            let found = Platform::parse(image).is_same(&Platform::parse(wanted));
            assert_eq!(found, fits, "{image} {wanted}");
        }
    }

    #[test]
    fn images_serve_the_platforms_that_a_classic_store_accepts() {
        for (image, wanted, fits) in [
            ("linux/amd64", "linux/amd64", true),
            ("linux/amd64", "linux/arm64", false),
            ("linux/arm64", "linux", true),
            ("linux/arm/v6", "linux/arm/v7", true),
            ("linux/arm/v7", "linux/arm/v6", false),
            ("linux/arm", "linux/arm/v7", true),
            ("linux/arm/v7", "linux/arm64", true),
            ("linux/arm64", "linux/arm/v7", false),
            ("linux/386", "linux/amd64", true),
            ("linux/amd64/v3", "linux/amd64", true),
            ("windows/amd64", "linux/amd64", false),
        ] {
            let found = Platform::parse(image).serves(&Platform::parse(wanted));
            assert_eq!(found, fits, "{image} {wanted}");
        }
    }

    #[test]
    fn older_variants_of_arm_are_taken_after_the_own_one() {
        for (own, expected) in [
            ("linux/arm/v7", &["linux/arm/v7", "linux/arm/v6", "linux/arm/v5"][..]),
            ("linux/arm", &["linux/arm/v7", "linux/arm/v6", "linux/arm/v5"][..]),
            ("linux/arm/v5", &["linux/arm/v5"][..]),
            ("linux/arm/v9", &["linux/arm/v9"][..]),
            ("linux/arm64", &["linux/arm64"][..]),
            ("linux/amd64/v3", &["linux/amd64/v3"][..]),
        ] {
            let found: Vec<String> =
                Platform::parse(own).by_preference().iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{own}");
        }
    }
}
