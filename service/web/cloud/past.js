/* States to go back to, one for each act of a hand. Knows when acts belong together; nothing of what they change. */

const ONE_ACT_MS = 800; // changes of one kind that follow each other faster are one act
const KEPT = 100;

export class Past {
  constructor(button) {
    Object.assign(this, { button, states: [], kind: null, time: 0 });
  }

  /** Keeps the state before a change, once for a run of changes of the same kind. */
  keep(kind, state) {
    const now = performance.now();
    const goesOn = kind !== "place" && kind === this.kind && now - this.time < ONE_ACT_MS;
    Object.assign(this, { kind, time: now });
    if (!goesOn) this.states = [...this.states, state].slice(-KEPT);
    this.button.disabled = false;
  }

  /** The next change is of the act that the last one began. */
  continueAs(kind) {
    this.kind = kind;
  }

  /** The state before the last act, if there is one. */
  pop() {
    const state = this.states.pop();
    this.button.disabled = this.states.length === 0;
    this.kind = null;
    return state;
  }
}
