//! "Did you mean": the known word that is nearest to a mistyped one.

/// The candidate with the fewest edits to `word`, if that is few enough to be a slip.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .min_by_key(|(edits, _)| *edits)
        .filter(|(edits, candidate)| *edits <= 1 + candidate.chars().count() / 4)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and exchanges of neighbours that make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(WORD_MAX).collect();
    let b: Vec<char> = b.chars().take(WORD_MAX).collect();
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replace = last[j] + usize::from(a[i] != b[j]);
            let mut edits = replace.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                let two_back: &Vec<usize> = &before_last;
                edits = edits.min(two_back[j - 1] + 1);
            }
            row.push(edits);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// No known word is longer; bounds the work for a hostile one.
const WORD_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised() {
        let words = ["address", "mtu", "route", "start", "stop"];
        assert_eq!(nearest("adress", words), Some("address"));
        assert_eq!(nearest("sotp", words), Some("stop"));
        assert_eq!(nearest("rute", words), Some("route"));
    }

    #[test]
    fn something_else_is_not_a_slip() {
        assert_eq!(nearest("frobnicate", ["address", "mtu"]), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ab", "ba"), 1);
    }
}
