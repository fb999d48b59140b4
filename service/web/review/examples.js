/* Sentences to begin with. */

export const EXAMPLES = [
  {
    name: "Torn",
    text: "Beautiful pictures and great music, but the story is a mess and the ending is awful. What a waste.",
  },
  {
    name: "Praise",
    text: "A wonderful film. Great acting, a clever script, and I was never bored.",
  },
  {
    name: "Not bad",
    text: "Not bad at all: the jokes are funny and the ending is charming, although the middle is a little slow.",
  },
  {
    name: "A waste of time",
    text: "What a waste of time. The plot is predictable, the acting is awful, and I was bored. The worst film I have seen this year.",
  },
];
