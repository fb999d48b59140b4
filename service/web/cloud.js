export class Cloud { constructor() {} values() { return {}; } open() {} repaint() {} }
