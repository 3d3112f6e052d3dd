//! The known name that a misspelt word was probably meant to be.

/// The most letters that are compared. A longer word is no typing mistake, and comparing costs the product of the
/// lengths.
const LONGEST: usize = 64;

/// The name nearest to `word`, if one is near enough for "did you mean". Letter case does not count.
///
/// ```
/// use driftless_yaml::closest;
///
/// assert_eq!(closest("imagePulPolicy", ["image", "imagePullPolicy"]), Some("imagePullPolicy"));
/// assert_eq!(closest("replicas", ["image", "imagePullPolicy"]), None);
/// ```
pub fn closest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let comparable = |text: &str| text.chars().take(LONGEST).flat_map(char::to_lowercase).collect::<String>();
    let word = comparable(word);
    let limit = (1 + word.chars().count() / 4).min(3);
    let distances = names.into_iter().map(|name| (strsim::osa_distance(&word, &comparable(name)), name));
    distances.filter(|(distance, _)| *distance <= limit).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["image", "imagePullPolicy", "name", "env"];
        let meant = |word| closest(word, names);
        assert_eq!(meant("imagePulPolicy"), Some("imagePullPolicy"));
        assert_eq!(meant("imagepullpolicy"), Some("imagePullPolicy"));
        assert_eq!(meant("imge"), Some("image"));
        assert_eq!(meant("iamge"), Some("image"));
        assert_eq!(meant("envs"), Some("env"));
        assert_eq!(meant("replicas"), None);
    }

    #[test]
    fn very_long_words_are_compared_in_part_only() {
        let long = "x".repeat(1 << 20);
        assert_eq!(closest(&long, ["image"]), None);
    }
}
